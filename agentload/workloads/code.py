"""Coding agents: a tool loop with log dumps, parallel tools, sub-agents and compaction.

All sessions share the system prompt and tool schemas, those of one repository also its notes. A user's request leads to a few or many
calls, each adding a tool result; now and then that is a long log, cut in the middle. Some sessions spawn sub-agents and wait for their
reports. A history that nears the window is summarised.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from random import Random
from typing import Final, Literal

from agentload.model.trace import Segment, Session, TurnRef
from agentload.plugins import Peak, Positive, Rate, Share, Spread
from agentload.workloads.parts.draws import Choice, Distribution, happens, lognormal, mixture, quantiles, seconds, tokens, uniform
from agentload.workloads.parts.talk import NO_PAUSE, Pause, Talk, recent
from agentload.workloads.parts.targets import Range, Target
from agentload.workloads.parts.times import CODE_TOOL, CODE_USER, starts

# 710 Claude Code sessions (callanjfox/kv-cache-tester), tables at q10/25/50/75/90/95/99: the prefix is 14.9k tokens (11.9k-15.9k),
# 12.3k of it tool schemas; fresh starts are 13.2k/19.0k/24.3k at q10/50/90, which leaves LN(4,000, 0.8) for notes and task.
_TASK: Final = lognormal(4_000, 0.8, 50, 60_000)
_OUTPUT: Final = quantiles(
    (0, 20), (0.10, 105), (0.25, 137), (0.50, 216), (0.75, 429), (0.90, 899), (0.95, 1_543), (0.99, 3_663), (1, 8_000)
)
_CALLS: Final = quantiles((0, 1), (0.10, 7), (0.25, 18), (0.50, 46), (0.75, 94), (0.90, 157), (0.95, 233), (0.99, 341), (1, 500))
_MESSAGES: Final = quantiles((0, 1), (0.10, 1), (0.25, 2), (0.50, 4), (0.75, 10), (0.90, 27), (0.99, 100), (1, 150))
# Calls a request: measured 1/2/7/21/41/99 at q10/25/50/75/90/99. Drawn longer at the top, because a session's end cuts its last request.
_REQUEST: Final = quantiles((0, 1), (0.10, 1), (0.25, 2), (0.50, 7), (0.75, 23), (0.90, 49), (0.99, 100), (1, 100))
_MESSAGE: Final = lognormal(20, 1.1, 3, 2_000)  # pi sessions (badlogic/pi-mono)

# Results: the lower 95 % of the measured table, and log dumps in the place of the longest; OpenClaw cuts at 64k characters.
_DUMP_SHARE: Final = 0.05
_FRESH: Final = ((0, 20), (0.10, 192), (0.25, 331), (0.50, 655), (0.75, 1_551), (0.90, 3_541), (0.95, 6_162))
_SHORT: Final = quantiles(*((share / (1 - _DUMP_SHARE), length) for share, length in _FRESH))
_RESULT: Final = mixture((1 - _DUMP_SHARE, _SHORT), (_DUMP_SHARE, uniform(4_000, 16_000)))
_PARALLEL: Final = Choice((0.86, 0.09, 0.03, 0.02))  # 1, 2, 3 or 4 tools a call (agentcgroup; beyond 2 only their sum is known)

# Sub-agents in 19 of 739 sessions to 10 % (kv-cache-tester); first prompts of 9.6k (chus-chus/blogpost_agentic_workloads).
_CHILDREN: Final = uniform(0.5, 5.5)  # 1 to 5 at once, OpenClaw's cap
_CHILD_CALLS: Final = uniform(10.5, 16.5)  # kv-cache-tester: q50 11, q90 17
_CHILD_TASK: Final = lognormal(300, 0.8, 20, 4_000)  # judgement
_REPORT: Final = lognormal(350, 0.5, 50, 2_000)  # judgement

_SUMMARY: Final = uniform(2_000, 4_000)  # judgement, as is the message that asks for it; kept as OpenClaw does
_ASK: Final = 120
# Coding agents of one generation reuse 96.8 % of a context, of a newer one 85.8 % (SemiAnalysis); AIPerf resets with 5 %, which gives
# the drops by 30 % and more in 0.5 % of kv-cache-tester's calls. The window is that of Qwen3-Coder.
_RESERVE: Final = 20_000
_KEEP_RECENT: Final = 20_000

_REPOSITORIES: Final = 100  # AIPerf's configuration of its agentic dataset: 100 groups, Zipf 0.6
_REPOSITORY: Final = Choice(tuple(rank**-0.6 for rank in range(1, _REPOSITORIES + 1)))
_NOTES_SHARE: Final = 0.5  # of the first message: judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class _Preset:
    prefix: str
    task: Distribution
    result: Distribution
    output: Distribution
    tool: Distribution
    user: Distribution


_MEASURED: Final = _Preset(prefix="code", task=_TASK, result=_RESULT, output=_OUTPUT, tool=CODE_TOOL, user=CODE_USER)
# ai-dynamo/aiperf, manifest 1k_sessions_200k_ctx: heavier than what was measured.
_AIPERF: Final = _Preset(
    prefix="code_aiperf",
    task=lognormal(20_000, 0.1, 10_000, 40_000),
    result=lognormal(4_000, 0.9, 20, 32_000),
    output=lognormal(800, 0.67, 20, 8_000),
    tool=lognormal(2, 1.35, 0.001, 3_600),
    user=lognormal(15, 1.18, 0.5, 3_600),
)
_PRESETS: Final = {"measured": _MEASURED, "aiperf": _AIPERF}


def _prefix(name: str, system: int, tools: int) -> tuple[Segment, ...]:
    return (Segment(role="system", tokens=system, key=f"{name}.system"), Segment(role="tools", tokens=tools, key=f"{name}.tools"))


PREFIXES: Final = {
    "code": _prefix("code", 2_800, 12_100),
    "code_sub": _prefix("code_sub", 1_800, 7_800),
    "code_aiperf": _prefix("code_aiperf", 6_000, 26_000),
}
TARGETS: Final = {
    "first": Target(19_000, 24_300),
    "output": Target(216, 899),
    "tool": Target(655, 3_541),
    "calls": Target(46, 157),
    "messages": Target(4, 27),
    "request": Target(7, 41),
    "wait.tool": Target(0.285, 13.6),
    "wait.user": Target(84, 1_240),
    "reuse": Range(0.86, 0.96),
    "compacted": Range(0.045, 0.184),  # TraceLab: 4.5 % of Claude's, 18.4 % of Codex's sessions
}


def generate(
    rng: Random,
    *,
    sessions: Positive = 100,
    rate_per_s: Rate = 0.02,
    cv: Spread = 1.0,
    peak: Peak = 1.0,
    window: Positive = 262_144,
    breaks: Share = 0.08,
    resets: Share = 0.05,
    subagents: Share = 0.05,
    preset: Literal["measured", "aiperf"] = "measured",
) -> Iterator[Session]:
    """Yield `sessions` sessions and, after each, its sub-agents.

    `subagents` is the share of sessions that spawn some, `breaks` the share of calls before which something in the history changes,
    `resets` the share of requests that start with an empty history.
    """
    drawn = _PRESETS[preset]
    for number, start_s in enumerate(islice(starts(rng, rate_per_s=rate_per_s, cv=cv, peak=peak), sessions)):
        agent = _Agent(rng, drawn, f"code-{number}", prefix=drawn.prefix, window=window, breaks=breaks, resets=resets)
        length = rng.random()
        calls = max(1, round(_CALLS(length)))
        # Long sessions have more messages: the same share of both tables.
        requests = _requests(rng, calls, messages=min(calls, max(1, round(_MESSAGES(length)))))
        agent.work(*requests, delegates=int(rng.random() * calls) if happens(rng, subagents) else None)
        yield agent.talk.session(start_s)
        yield from agent.children


def _requests(rng: Random, calls: int, *, messages: int) -> tuple[list[int], float]:
    """Return the number of calls of each request, and the share of other calls with a message (the user interrupts)."""
    requests: list[int] = []
    left = calls
    while left:
        requests.append(left if len(requests) == messages - 1 else min(left, tokens(rng, _REQUEST)))
        left -= requests[-1]
    return requests, (messages - len(requests)) / max(1, calls - len(requests))


class _Agent:
    """One agent and its sub-agents."""

    def __init__(
        self, rng: Random, drawn: _Preset, name: str, *, prefix: str, window: int, breaks: float = 0.0, resets: float = 0.0
    ) -> None:
        self.talk = Talk(name, workload="code", prefix=prefix, leads=PREFIXES[prefix])
        self._prefix = prefix
        self.children: list[Session] = []
        self._rng = rng
        self._drawn = drawn
        self._window = window
        self._breaks = breaks
        self._resets = resets

    def work(self, requests: list[int], cuts_in: float, *, delegates: int | None) -> None:
        """Answer each request in its calls; the call of index `delegates` spawns sub-agents if its request continues after it."""
        rng, talk = self._rng, self.talk
        self._read_task()
        call = 0
        for number, calls in enumerate(requests):
            pause = NO_PAUSE
            after: tuple[TurnRef, ...] = ()
            sent: tuple[Session, ...] = ()
            if number:
                if happens(rng, self._resets):
                    talk.reset(len(PREFIXES[self._prefix]) + 1)  # the repository's notes stay
                talk.add("user", tokens(rng, _MESSAGE))
                pause = Pause("user", seconds(rng, self._drawn.user))
            for step in range(calls):
                if step:
                    after = self._join(sent)
                    pause = NO_PAUSE if sent else self._use_tools()
                    if happens(rng, cuts_in):
                        talk.add("user", tokens(rng, _MESSAGE))
                if call and happens(rng, self._breaks):
                    self._break()
                sent = self._send_out() if call == delegates and step + 1 < calls else ()
                talk.call(tokens(rng, self._drawn.output), pause, spawn=tuple(child.session for child in sent), after=after)
                self._compact_if_long()
                call += 1

    def _read_task(self) -> None:
        total = tokens(self._rng, self._drawn.task)
        notes = round(total * _NOTES_SHARE)
        # A shorter segment of a key is a prefix of a longer one: sessions of a repository share the notes both have read.
        self.talk.add("user", notes, f"code.repository{_REPOSITORY.pick(self._rng)}")
        self.talk.add("user", total - notes)

    def _use_tools(self) -> Pause:
        tools = _PARALLEL.pick(self._rng) + 1
        total = tokens(self._rng, self._drawn.result)
        for tool in range(tools):
            self.talk.add("tool", max(1, total * (tool + 1) // tools - total * tool // tools))
        return Pause("tool", seconds(self._rng, self._drawn.tool))

    def _send_out(self) -> tuple[Session, ...]:
        sent = tuple(self._child(f"{self.talk.name}.{number}") for number in range(round(_CHILDREN(self._rng.random()))))
        self.children.extend(sent)
        return sent

    def _join(self, sent: tuple[Session, ...]) -> tuple[TurnRef, ...]:
        ends = tuple(TurnRef(session=child.session, turn=-1) for child in sent)
        reports = (Segment(role="tool", tokens=child.turns[-1].output, key=f"{child.session}.report") for child in sent)
        self.talk.put(*(replace(report, source=end) for report, end in zip(reports, ends, strict=True)))
        return ends

    def _child(self, name: str) -> Session:
        rng = self._rng
        child = _Agent(rng, self._drawn, name, prefix="code_sub", window=self._window)
        child.talk.add("user", tokens(rng, _CHILD_TASK))
        pause = NO_PAUSE
        for _ in range(round(_CHILD_CALLS(rng.random())) - 1):
            child.talk.call(tokens(rng, self._drawn.output), pause, event="subagent")
            pause = child._use_tools()
        child.talk.call(tokens(rng, _REPORT), pause, event="subagent")
        return child.talk.session(None)

    def _break(self) -> None:
        """Change one segment of the history (a pruned result, a changed reminder); all after it is new to a prefix cache."""
        prefix = len(PREFIXES[self._prefix])
        place = prefix + int(self._rng.random() * (len(self.talk.context) - prefix))
        changed, *rest = self.talk.rest(place)
        self.talk.reset(place, replace(changed, key=self.talk.key()), *rest)

    def _compact_if_long(self) -> None:
        if self.talk.tokens <= self._window - _RESERVE:
            return
        prefix = len(PREFIXES[self._prefix])
        kept = recent(self.talk.rest(prefix), _KEEP_RECENT)
        summary = tokens(self._rng, _SUMMARY)
        self.talk.add("user", _ASK)
        self.talk.call(summary, event="compact")
        self.talk.reset(prefix, Segment(role="user", tokens=summary, key=self.talk.key()), *kept)
