"""Long direct messages with an OpenClaw agent: tools, a growing history, memory flush, compaction.

Every session starts with the large system prompt and tool schemas of its agent profile, shared
by all sessions of that profile. A user's message is answered in a few tool steps and a reply.
When the history nears the window, the agent first writes its memory file, then has the history
summarised and continues with the summary and the most recent messages. A suffix inside the
system message changes now and then, which makes everything after it new to the prefix cache.
"""

from collections.abc import Iterator
from random import Random
from typing import Final, Literal

from agentload.model.trace import Segment, Session
from agentload.plugins import Positive, Share
from agentload.workloads.parts.draws import (
    Distribution,
    WeightedChoice,
    geometric,
    happens,
    inverse_gaussian,
    lognormal,
    seconds,
    tokens,
    uniform,
)
from agentload.workloads.parts.talk import NO_PAUSE, Pause, Talk, recent
from agentload.workloads.parts.targets import QuantileTarget
from agentload.workloads.parts.times import OPENCLAW_TOOL, PI_USER, ArrivalProcess

# First prompts of OpenClaw: 10.2-10.7k tokens in measured sessions
# (chus-chus/blogpost_agentic_workloads), 17.6k in OpenClaw's docs/concepts/context.md, 18.4k in
# openclaw#81056, 28k in LobsterAI#1978; 45% of it system prompt, 55% tool schemas (context.md).
_PREFIX: Final = lognormal(16_000, 0.35, 9_000, 30_000)
_SYSTEM_SHARE: Final = 0.45
# judgement: the text after OpenClaw's cache boundary (messaging, group, reactions, date, runtime)
_SUFFIX: Final = 300
# judgement: enough for the quantiles of the prefix to
# show, as is how few of them most sessions belong to
_PROFILES: Final = 16
_PROFILE: Final = WeightedChoice(
    tuple((1 + number * 7 % _PROFILES) ** -0.8 for number in range(_PROFILES))
)

# Messages of two pi sessions: q50 19, q90 51-92, q99 364-455
# (badlogic/pi-mono test fixtures), and OpenClaw's envelope around each.
_USER: Final = lognormal(20, 1.1, 3, 2_000)
_ENVELOPE: Final = 60
_REPLY: Final = lognormal(
    350, 0.45
)  # Mooncake conversation: q50 350, q90 597 (kvcache-ai/Mooncake FAST25 traces)
_STEP: Final = lognormal(
    130, 0.93
)  # output of a call that leads to a tool; pi sessions: q50 103-133, q90 389-711
_STEPS: Final = geometric(
    2, low=1
)  # a mean of 3 where there are any: judgement, as is the share without
_WITHOUT_TOOLS: Final = 0.4
_RESULT: Final = lognormal(
    150, 1.6, 1, 4_000
)  # pi q50 29-50, agentcgroup q50 156-165, q90 990-2,366; OpenClaw caps 16k characters
# The best single fits to 988 calls of OpenClaw sessions, by their
# author (chus-chus/blogpost_agentic_workloads): heavier than pi's.
_PRESETS: Final[dict[str, tuple[Distribution, Distribution]]] = {
    "pi": (_STEP, _RESULT),
    "openclaw": (inverse_gaussian(615, 145, 10, 8_000), inverse_gaussian(815, 200, 10, 8_000)),
}
_MESSAGES: Final = lognormal(
    40, 0.9, 1, 400
)  # pi sessions: 55 and 88 user messages; OpenClaw resets no session by itself

# OpenClaw docs/reference/session-management-compaction.md: 20k
# tokens reserved, the last 20k kept, memory flush 4k before.
_RESERVE: Final = 20_000
_KEEP_RECENT: Final = 20_000
_FLUSH_BEFORE: Final = 4_000
_SUMMARY: Final = uniform(1_000, 3_000)
_ASK: Final = 120  # judgement: the silent message that asks for a flush or a summary
_NOTE: Final = lognormal(200, 0.5)  # judgement: what a flush writes to memory
_NO_REPLY: Final = 4


def _profile(number: int) -> tuple[Segment, ...]:
    total = round(_PREFIX((number + 0.5) / _PROFILES))
    stable = round(total * _SYSTEM_SHARE) - _SUFFIX
    return (
        Segment(role="system", tokens=stable, key=f"chat.system{number}"),
        Segment(role="system", tokens=_SUFFIX, key=f"chat.suffix{number}"),
        Segment(role="tools", tokens=total - stable - _SUFFIX, key=f"chat.tools{number}"),
    )


PREFIXES: Final = {f"chat{number}": _profile(number) for number in range(_PROFILES)}

REAL: Final = "two pi sessions (badlogic/pi-mono), too few to compare with"
UNSAID: Final = "OpenClaw's own lengths but for 988 calls (preset=openclaw), profiles, aborts"
TARGETS: Final = {
    "prefix": QuantileTarget(16_000, 25_050),
    "user": QuantileTarget(_ENVELOPE + 20, _ENVELOPE + 82),
    "output.reply": QuantileTarget(350, 597),
    "output.step": QuantileTarget(130, 428),
    "tool": QuantileTarget(150, 1_165),
    "messages": QuantileTarget(40, 127),
    "wait.user": QuantileTarget(45, 162),
    "wait.tool": QuantileTarget(0.05, 2.3),
}


def generate(
    rng: Random,
    *,
    arrivals: ArrivalProcess = ArrivalProcess(sessions=200, rate_per_s=0.05),
    window: Positive = 128_000,
    suffix_changes: Share = 0.02,
    preset: Literal["pi", "openclaw"] = "pi",
) -> Iterator[Session]:
    """Yield `sessions` sessions; before a share of user messages
    the system message's suffix changes (`suffix_changes`).
    """
    # contextWindow 128000 is the example of OpenClaw's
    # docs/providers/vllm.md; how often the suffix changes is judgement.
    for number, start_s in enumerate(arrivals.draw(rng)):
        profile = f"chat{_PROFILE.pick(rng)}"
        talk = Talk(f"chat-{number}", workload="chat", prefix=profile, leads=PREFIXES[profile])
        step, result = _PRESETS[preset]
        flushed = False
        for message in range(tokens(rng, _MESSAGES)):
            if message and happens(rng, suffix_changes):
                tools = PREFIXES[profile][2]
                talk.reset(
                    1, Segment(role="system", tokens=_SUFFIX, key=talk.key()), tools, *talk.rest(3)
                )
            _answer(
                rng,
                talk,
                Pause("user", seconds(rng, PI_USER)) if message else NO_PAUSE,
                step,
                result,
            )
            if not flushed and talk.tokens > window - _RESERVE - _FLUSH_BEFORE:
                _flush(rng, talk)
                flushed = True
            if talk.tokens > window - _RESERVE:
                _compact(rng, talk)
                flushed = False
        yield talk.session(start_s)


def _answer(
    rng: Random, talk: Talk, pause: Pause, step: Distribution, result: Distribution
) -> None:
    steps = 0 if happens(rng, _WITHOUT_TOOLS) else round(_STEPS(rng.random()))
    talk.add("user", _ENVELOPE + tokens(rng, _USER))
    for _ in range(steps):
        talk.call(tokens(rng, step), pause)
        pause = talk.use_tools(rng, result, OPENCLAW_TOOL)
    talk.call(tokens(rng, _REPLY), pause)


def _flush(rng: Random, talk: Talk) -> None:
    talk.add("user", _ASK)
    talk.call(tokens(rng, _NOTE), event="flush")
    talk.add("tool", _NO_REPLY)
    talk.call(_NO_REPLY, Pause("tool", seconds(rng, OPENCLAW_TOOL)), event="flush")


def _compact(rng: Random, talk: Talk) -> None:
    summary = tokens(rng, _SUMMARY)
    kept = recent(talk.rest(3), _KEEP_RECENT)
    talk.add("user", _ASK)
    talk.call(summary, event="compact")
    talk.reset(3, Segment(role="user", tokens=summary, key=talk.key()), *kept)
