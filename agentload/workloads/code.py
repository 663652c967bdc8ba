"""Coding agents: a tool loop with long results, parallel tools, sub-agents and compaction.

All sessions share the system prompt and tool schemas, those of one repository also its
notes; half of them continue an earlier one, whose history the first call brings. A
user's request leads to a few or many calls, each adding a tool result or several. Some
sessions spawn sub-agents and wait for their reports. A history that nears the window is
summarised; `agentload replay --max-context` cuts what a server's window does not hold.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final, Literal

from agentload.model.record import Record
from agentload.model.trace import Segment, Session, TurnRef
from agentload.plugins import Positive, Share
from agentload.workloads.parts.draws import (
    Distribution,
    WeightedChoice,
    even,
    happens,
    lognormal,
    quantiles,
    seconds,
    tokens,
    uniform,
)
from agentload.workloads.parts.talk import NO_PAUSE, Pause, Talk, prompt_prefix, recent
from agentload.workloads.parts.targets import QuantileTarget, Range
from agentload.workloads.parts.times import CODE_TOOL, CODE_USER, ArrivalProcess

# Claude Code sessions (callanjfox/kv-cache-tester): 710 of them at q10/50/90/99, evened
# with 120 of another draw. The prefix is 14.9k tokens (11.9k-15.9k), 12.3k of it tool
# schemas. Half of the sessions were fresh when their recording began, the others went on.
_FIRST: Final = quantiles(
    (0, 15_000),
    (0.10, 15_600),
    (0.25, 17_000),
    (0.50, 36_000),
    (0.75, 114_000),
    (0.90, 232_000),
    (0.95, 380_000),
    (0.99, 640_000),
    (1, 800_000),
)
_WENT_ON: Final = (
    80_000  # of such length: sessions that had been going on, with fewer calls to come
)
_LEFT: Final = 0.5
_CALLS: Final = quantiles(
    (0, 1),
    (0.10, 8),
    (0.25, 19),
    (0.50, 46),
    (0.75, 94),
    (0.90, 157),
    (0.95, 233),
    (0.99, 380),
    (1, 500),
)
_REQUEST: Final = quantiles(
    (0, 1), (0.50, 2), (0.75, 5), (0.90, 15), (0.99, 72), (1, 120)
)  # calls that a message leads to
_MESSAGE: Final = lognormal(20, 1.1, 3, 2_000)  # pi sessions (badlogic/pi-mono)
_OUTPUT: Final = quantiles(
    (0, 20),
    (0.10, 107),
    (0.25, 141),
    (0.50, 224),
    (0.75, 431),
    (0.90, 880),
    (0.95, 1_450),
    (0.99, 3_550),
    (1, 8_000),
)
_RESULT: Final = quantiles(
    (0, 8),
    (0.10, 66),
    (0.25, 220),
    (0.50, 510),
    (0.75, 1_600),
    (0.90, 3_850),
    (0.95, 6_600),
    (0.99, 16_000),
    (1, 60_000),
)

# Sub-agents in 19 of 739 sessions to 10% (kv-cache-tester);
# first prompts of 9.6k (chus-chus/blogpost_agentic_workloads).
_CHILDREN: Final = uniform(0.5, 5.5)  # 1 to 5 at once, OpenClaw's cap
_CHILD_CALLS: Final = uniform(10.5, 16.5)  # kv-cache-tester: q50 11, q90 17
_CHILD_TASK: Final = lognormal(300, 0.8, 20, 4_000)  # judgement
_REPORT: Final = lognormal(350, 0.5, 50, 2_000)  # judgement

# Contexts fall at 130k-165k of a window of 200k, to 20k-110k; a tenth
# of the fresh sessions grow beyond, towards a million (same trace).
_LIMITS: Final = (155_000, 900_000)
_LONG_SHARE: Final = 0.09
_SUMMARY: Final = uniform(2_000, 4_000)  # judgement, as is the message that asks for it
_KEPT: Final = uniform(20_000, 95_000)
_ASK: Final = 120
_FULL: Final = 0.9  # of a window that `window` bounds: judgement
# Coding agents of one generation reuse 96.8% of a context, of a newer one 85.8%
# (SemiAnalysis); AIPerf resets with 5%, which gives the drops by 30% and
# more in 0.5% of kv-cache-tester's calls.

_REPOSITORIES: Final = 100  # AIPerf's configuration of its agentic dataset: 100 groups, Zipf 0.6
_REPOSITORY: Final = WeightedChoice(tuple(rank**-0.6 for rank in range(1, _REPOSITORIES + 1)))
_NOTES: Final = 1_500  # judgement, as is what users break off


class _Preset(Record):
    prefix: str
    first: Distribution
    result: Distribution
    output: Distribution
    tool: Distribution
    user: Distribution


_MEASURED: Final = _Preset(
    prefix="code", first=_FIRST, result=_RESULT, output=_OUTPUT, tool=CODE_TOOL, user=CODE_USER
)
# ai-dynamo/aiperf, manifest 1k_sessions_200k_ctx: heavier than what was measured.
_AIPERF: Final = _Preset(
    prefix="code_aiperf",
    first=lognormal(52_000, 0.04, 42_000, 72_000),
    result=lognormal(4_000, 0.9, 20, 32_000),
    output=lognormal(800, 0.67, 20, 8_000),
    tool=lognormal(2, 1.35, 0.001, 3_600),
    user=lognormal(15, 1.18, 0.5, 3_600),
)
_PRESETS: Final = {"measured": _MEASURED, "aiperf": _AIPERF}


PREFIXES: Final = {
    "code": prompt_prefix("code", system=2_800, tools=12_100),
    "code_sub": prompt_prefix("code_sub", system=1_800, tools=7_800),
    "code_aiperf": prompt_prefix("code_aiperf", system=6_000, tools=26_000),
}
REAL: Final = "kv-cache-tester (callanjfox): Claude Code through a proxy, with its sub-agents"
UNSAID: Final = (
    "which tools ran at once and how long each result was, whose sessions they were, what "
    "users broke off"
)
TARGETS: Final = {
    "context": QuantileTarget(104_000, 240_000, 610_000),
    "first": QuantileTarget(36_000, 232_000, 640_000),
    "output": QuantileTarget(224, 880, 3_550),
    "tool": QuantileTarget(530, 3_950, 17_000),
    "wait.tool": QuantileTarget(8.7, 71, 950),
    "wait.user": QuantileTarget(115, 1_300, 9_000),
    "reuse": Range(0.86, 0.97),
}


class Odds(Record):
    """How often something disturbs the course of a session."""

    breaks: Share = 0.08
    """Share of the calls before which something in the history changes."""
    resets: Share = 0.005
    """Share of the requests that start with an empty history."""
    subagents: Share = 0.05
    """Share of the sessions that spawn sub-agents."""
    aborts: Share = 0.01
    """Share of the calls that a client breaks off and sends again."""


_UNDISTURBED: Final = Odds(breaks=0, resets=0, subagents=0, aborts=0)


def generate(
    rng: Random,
    *,
    arrivals: ArrivalProcess = ArrivalProcess(sessions=100, rate_per_s=0.02),
    window: Positive = 1_000_000,
    odds: Odds = Odds(),
    preset: Literal["measured", "aiperf"] = "measured",
) -> Iterator[Session]:
    """Yield each session, and after it its sub-agents.

    Most models have a window of 200,000 tokens, some of a million; `window` bounds both.
    """
    drawn = _PRESETS[preset]
    evenly = even(rng, 3)
    for number, start_s in enumerate(arrivals.draw(rng)):
        length, worked, size = next(evenly)
        first = round(drawn.first(length))
        limit = _LIMITS[first > _LIMITS[0] or size < _LONG_SHARE]
        calls = max(1, round(_CALLS(worked) * (_LEFT if first > _WENT_ON else 1)))
        agent = _Agent(
            rng,
            drawn,
            f"code-{number}",
            prefix=drawn.prefix,
            limit=min(limit, round(_FULL * window)),
            odds=odds,
        )
        delegates = int(rng.random() * calls) if happens(rng, odds.subagents) else None
        agent.work(first, calls, delegates=delegates)
        yield agent.talk.session(start_s)
        yield from agent.children


class _Agent:
    """One agent and its sub-agents."""

    def __init__(
        self,
        rng: Random,
        drawn: _Preset,
        name: str,
        *,
        prefix: str,
        limit: int,
        odds: Odds = _UNDISTURBED,
    ) -> None:
        self.talk = Talk(name, workload="code", prefix=prefix, leads=PREFIXES[prefix])
        self._prefix = prefix
        self.children: list[Session] = []
        self._rng = rng
        self._drawn = drawn
        self._limit = limit
        self._odds = odds

    def work(self, first: int, calls: int, *, delegates: int | None) -> None:
        """Make this many calls; that of index `delegates`
        spawns sub-agents if its request continues after it.
        """
        rng, talk = self._rng, self.talk
        self._begin(min(first, self._limit))
        sent: tuple[Session, ...] = ()
        left = tokens(rng, _REQUEST)  # calls of the request under way
        for call in range(calls):
            pause = NO_PAUSE
            after: tuple[TurnRef, ...] = ()
            if call and left == 0:
                left = tokens(rng, _REQUEST)
                pause = self._ask()
            elif sent:
                after = self._join(sent)
            elif call:
                pause = self._use_tools()
            if call and happens(rng, self._odds.breaks):
                self._break()
            left -= 1
            sent = self._send_out() if call == delegates and left and call + 1 < calls else ()
            talk.call(
                tokens(rng, self._drawn.output),
                pause,
                spawn=tuple(child.session for child in sent),
                after=after,
                aborted=rng.random() if call and happens(rng, self._odds.aborts) else None,
            )
            self._compact_if_long()

    def _begin(self, first: int) -> None:
        """Read the repository's notes, then what there is of the session so far."""
        total = max(2, first - self.talk.tokens)
        notes = min(_NOTES, total // 2)
        # A shorter segment of a key is a prefix of a longer one:
        # sessions of a repository share the notes both have read.
        self.talk.add("user", notes, f"code.repository{_REPOSITORY.pick(self._rng)}")
        self.talk.add("user", total - notes)

    def _ask(self) -> Pause:
        if happens(self._rng, self._odds.resets):
            self.talk.reset(len(PREFIXES[self._prefix]) + 1)  # the repository's notes stay
        self.talk.add("user", tokens(self._rng, _MESSAGE))
        return Pause("user", seconds(self._rng, self._drawn.user))

    def _use_tools(self) -> Pause:
        return self.talk.use_tools(self._rng, self._drawn.result, self._drawn.tool)

    def _send_out(self) -> tuple[Session, ...]:
        sent = tuple(
            self._child(f"{self.talk.name}.{number}")
            for number in range(round(_CHILDREN(self._rng.random())))
        )
        self.children.extend(sent)
        return sent

    def _join(self, sent: tuple[Session, ...]) -> tuple[TurnRef, ...]:
        ends = tuple(TurnRef(session=child.session, turn=-1) for child in sent)
        reports = (
            Segment(role="tool", tokens=child.turns[-1].output, key=f"{child.session}.report")
            for child in sent
        )
        self.talk.put(
            *(replace(report, source=end) for report, end in zip(reports, ends, strict=True))
        )
        return ends

    def _child(self, name: str) -> Session:
        rng = self._rng
        child = _Agent(rng, self._drawn, name, prefix="code_sub", limit=self._limit)
        child.talk.add("user", tokens(rng, _CHILD_TASK))
        pause = NO_PAUSE
        for _ in range(round(_CHILD_CALLS(rng.random())) - 1):
            child.talk.call(tokens(rng, self._drawn.output), pause, event="subagent")
            pause = child._use_tools()
        child.talk.call(tokens(rng, _REPORT), pause, event="subagent")
        return child.talk.session(None)

    def _break(self) -> None:
        """Change one segment of the history (a pruned result, a
        changed reminder); all after it is new to a prefix cache.
        """
        prefix = len(PREFIXES[self._prefix])
        place = prefix + int(self._rng.random() * (len(self.talk.context) - prefix))
        changed, *rest = self.talk.rest(place)
        self.talk.reset(place, replace(changed, key=self.talk.key()), *rest)

    def _compact_if_long(self) -> None:
        if self.talk.tokens <= self._limit:
            return
        prefix = len(PREFIXES[self._prefix])
        kept = recent(self.talk.rest(prefix), min(tokens(self._rng, _KEPT), self._limit // 2))
        summary = tokens(self._rng, _SUMMARY)
        self.talk.add("user", _ASK)
        self.talk.call(summary, event="compact")
        self.talk.reset(prefix, Segment(role="user", tokens=summary, key=self.talk.key()), *kept)
