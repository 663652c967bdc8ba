"""Work on a schedule: heartbeats, isolated jobs that start at one instant, batches, summaries.

The mode `agents` mixes heartbeats, which carry the whole history of an agent's main
session and mostly end with a few tokens, with isolated jobs on a time grid (every five
minutes, every hour), which share only their prefix. `batch` is a batch API: single calls
in heavy bursts. `summaries` are bursts of long documents. Every call has a deadline.
"""

from collections.abc import Iterator
from heapq import merge
from itertools import count, islice
from random import Random
from typing import Final, Literal, NamedTuple

from agentload.model.trace import Extra, Segment, Session, total_tokens
from agentload.plugins import Positive, Rate, Seconds, Share, Spread
from agentload.workloads.parts.draws import (
    Distribution,
    WeightedChoice,
    happens,
    log_uniform,
    lognormal,
    permutation,
    quantiles,
    seconds,
    tokens,
    uniform,
)
from agentload.workloads.parts.talk import NO_PAUSE, Talk, prompt_prefix
from agentload.workloads.parts.targets import QuantileTarget, Range
from agentload.workloads.parts.times import OPENCLAW_TOOL, starts

_HEARTBEAT_S: Final = 1_800.0  # OpenClaw docs/gateway/heartbeat.md
_HEARTBEAT_SHARE: Final = 0.5  # of all runs: judgement
_HEARTBEAT_MESSAGE: Final = 90  # its text is in the same document
_CONTEXT: Final = lognormal(
    28_000, 0.7, 5_000, 100_000
)  # 5k light, 28k usual (LobsterAI#1978), 100k in an old session (openclaw#46634)
_QUIET_SHARE: Final = 0.6  # `HEARTBEAT_OK` without tools; about half in openclaw#47936
_QUIET: Final = 6
_HEARTBEAT_STEPS: Final = uniform(1.5, 8.5)  # 2 to 8: judgement, as is the reply
_HEARTBEAT_REPLY: Final = lognormal(200, 0.9)

# Judgement but for the step's lengths, which are chat's.
_MESSAGE: Final = lognormal(120, 0.8)
_STEPS: Final = uniform(2.5, 10.5)  # 3 to 10
_REPLY: Final = lognormal(300, 0.8)
_STEP: Final = lognormal(130, 0.93)
_RESULT: Final = lognormal(150, 1.6, 1, 4_000)
_PERIODS: Final = ((300.0, 0.4), (3_600.0, 0.6))  # s, and the share of the jobs' runs

# Azure 2023 code trace (Azure/AzurePublicDataset): contexts
# 1,469/5,188/7,436 and answers 13/55/251 at q50/90/99, gaps of CV 13.2.
_BATCH_PROMPT: Final = quantiles(
    (0, 20), (0.10, 257), (0.50, 1_469), (0.90, 5_188), (0.99, 7_436), (1, 8_000)
)
_BATCH_ANSWER: Final = quantiles((0, 1), (0.10, 5), (0.50, 13), (0.90, 55), (0.99, 251), (1, 1_000))
_JSON: Final = (("response_format", '{"type":"json_object"}'),)
_BATCH_DEADLINE_S: Final = 3_600.0  # judgement

# Documents as long as Mooncake's prompts (kvcache-ai/Mooncake:
# 6,909/27,367/85,400 at q50/90/99), summaries as arXiv's.
_DOCUMENT: Final = quantiles(
    (0, 300), (0.10, 1_500), (0.50, 6_909), (0.90, 27_367), (0.99, 85_400), (1, 120_000)
)
_SUMMARY: Final = lognormal(167, 0.65)
_BURST: Final = log_uniform(10, 200)
_BURST_MEAN: Final = 63.4

_SYSTEM: Final = 60  # what asks for a summary: judgement

_AGENTS: Final = 8
_PREFIX: Final = lognormal(16_000, 0.35, 9_000, 30_000)  # as in chat
_AGENT: Final = WeightedChoice(
    tuple((1 + number * 3 % _AGENTS) ** -0.8 for number in range(_AGENTS))
)  # few own most jobs: judgement


def _prompt(name: str, total: int) -> tuple[Segment, ...]:
    system = round(total * 0.45)
    return prompt_prefix(name, system=system, tools=total - system)


PREFIXES: Final = {
    # OpenClaw's prompts by agent, and the one of heartbeats with lightContext.
    **{
        f"cron{agent}": _prompt(f"cron{agent}", round(_PREFIX((agent + 0.5) / _AGENTS)))
        for agent in range(_AGENTS)
    },
    "cron_light": _prompt("cron_light", 4_000),
    "cron_summary": prompt_prefix("cron_summary", system=_SYSTEM, tools=0),
}
REAL: Final = "Azure 2023 code, of mode=batch; none of agents' jobs"
UNSAID: Final = "all that mode=agents does; contents and sessions of batches"
VARIANTS: Final[tuple[dict[str, object], ...]] = ({}, {"mode": "batch"}, {"mode": "summaries"})
TARGETS: Final = {
    "first@quiet": QuantileTarget(28_000, 68_700),
    "output@quiet": QuantileTarget(6, 6),
    "calls@job": QuantileTarget(6.5, 10),
    "output.reply@job": QuantileTarget(300, 836),
    "output.step@job": QuantileTarget(130, 428),
    "reuse@job": Range(0.85, 1.0),
    "first@batch": QuantileTarget(1_469, 5_188),
    "output@batch": QuantileTarget(13, 55),
    "output@summary": QuantileTarget(167, 384),
}


class _Run(NamedTuple):
    start_s: float
    kind: Literal["heartbeat", "job"]
    owner: int
    agent: int
    number: int
    period_s: float


def generate(
    rng: Random,
    *,
    sessions: Positive = 400,
    rate_per_s: Rate = 0.1,
    mode: Literal["agents", "batch", "summaries"] = "agents",
    stagger_s: Seconds = 300.0,
    cv: Spread = 13.0,
    structured: Share = 0.0,
) -> Iterator[Session]:
    """Yield `sessions` runs; hourly jobs are spread over `stagger_s`,
    0 starts them at once; `cv` shapes the arrivals of `batch`.

    A share of the jobs has a `structured` reply, in JSON;
    servers that are forced to a length may not close it.
    """
    # OpenClaw staggers jobs at the top of the hour by
    # up to five minutes (docs/automation/cron-jobs.md).
    match mode:
        case "agents":
            return islice(_agents(rng, rate_per_s, stagger_s, structured), sessions)
        case "batch":
            return islice(_batch(rng, rate_per_s, cv), sessions)
        case "summaries":
            return islice(_summaries(rng, rate_per_s), sessions)


def _agents(
    rng: Random, rate_per_s: float, stagger_s: float, structured: float
) -> Iterator[Session]:
    owners = max(1, round(rate_per_s * _HEARTBEAT_SHARE * _HEARTBEAT_S))
    # The same few agents run repeatedly: evenly spaced quantiles,
    # so that few draws do not decide the lengths of a whole trace.
    contexts = permutation(
        rng, [round(_CONTEXT((owner + 0.5) / owners)) for owner in range(owners)]
    )
    grids = [
        _grid(
            rng,
            "heartbeat",
            sorted(seconds(rng, uniform(0, _HEARTBEAT_S)) for _ in range(owners)),
            _HEARTBEAT_S,
        )
    ]
    for period_s, share in _PERIODS:
        jobs = max(1, round(rate_per_s * (1 - _HEARTBEAT_SHARE) * share * period_s))
        spread_s = min(stagger_s, period_s) if period_s >= 3_600 else 0.0
        grids.append(
            _grid(
                rng,
                "job",
                sorted(seconds(rng, uniform(0, spread_s)) for _ in range(jobs)),
                period_s,
            )
        )
    for run in merge(*grids):
        yield (
            _heartbeat(rng, run, contexts[run.owner])
            if run.kind == "heartbeat"
            else _job(rng, run, structured)
        )


def _grid(
    rng: Random, kind: Literal["heartbeat", "job"], offsets_s: list[float], period_s: float
) -> Iterator[_Run]:
    agents = [_AGENT.pick(rng) for _ in offsets_s]
    return (
        _Run(round(number * period_s + offset_s, 3), kind, owner, agent, number, period_s)
        for number in count()
        for owner, (offset_s, agent) in enumerate(zip(offsets_s, agents, strict=True))
    )


def _heartbeat(rng: Random, run: _Run, context: int) -> Session:
    prefix = f"cron{run.agent}"
    prefix = prefix if context > 1.1 * _length(prefix) else "cron_light"
    talk = Talk(
        f"cron-heartbeat{run.owner}-{run.number}",
        workload="cron",
        prefix=prefix,
        leads=PREFIXES[prefix],
    )
    # Quiet heartbeats leave no trace in the main session, so its history is the same at each.
    talk.add(
        "user", max(1, context - _length(prefix) - _HEARTBEAT_MESSAGE), f"cron.main{run.owner}"
    )
    talk.add("user", _HEARTBEAT_MESSAGE, "cron.heartbeat")
    if happens(rng, _QUIET_SHARE):
        talk.call(_QUIET, event="quiet", deadline_s=run.period_s)
    else:
        _work(
            rng,
            talk,
            round(_HEARTBEAT_STEPS(rng.random())),
            _HEARTBEAT_REPLY,
            event="heartbeat",
            deadline_s=run.period_s,
        )
    return talk.session(run.start_s)


def _job(rng: Random, run: _Run, structured: float) -> Session:
    prefix = f"cron{run.agent}"
    talk = Talk(
        f"cron-job{round(run.period_s)}.{run.owner}-{run.number}",
        workload="cron",
        prefix=prefix,
        leads=PREFIXES[prefix],
    )
    talk.add("user", tokens(rng, _MESSAGE), f"cron.job{round(run.period_s)}.{run.owner}")
    _work(
        rng,
        talk,
        round(_STEPS(rng.random())) - 1,
        _REPLY,
        event="job",
        deadline_s=run.period_s,
        asks=_JSON if structured and happens(rng, structured) else (),
    )
    return talk.session(run.start_s)


def _work(
    rng: Random,
    talk: Talk,
    steps: int,
    reply: Distribution,
    *,
    event: str,
    deadline_s: float,
    asks: Extra = (),
) -> None:
    # The run is due with the next one; its calls share that time.
    share_s = round(deadline_s / (steps + 1), 3)
    pause = NO_PAUSE
    for _ in range(steps):
        talk.call(tokens(rng, _STEP), pause, event=event, deadline_s=share_s)
        pause = talk.use_tools(rng, _RESULT, OPENCLAW_TOOL)
    talk.call(tokens(rng, reply), pause, event=event, deadline_s=share_s, asks=asks)


def _batch(rng: Random, rate_per_s: float, cv: float) -> Iterator[Session]:
    for number, start_s in enumerate(starts(rng, rate_per_s=rate_per_s, cv=cv)):
        talk = Talk(f"cron-batch-{number}", workload="cron")
        talk.add("user", tokens(rng, _BATCH_PROMPT))
        talk.call(tokens(rng, _BATCH_ANSWER), event="batch", deadline_s=_BATCH_DEADLINE_S)
        yield talk.session(start_s)


def _summaries(rng: Random, rate_per_s: float) -> Iterator[Session]:
    number = count()
    for start_s in starts(rng, rate_per_s=rate_per_s / _BURST_MEAN):
        for _ in range(tokens(rng, _BURST)):
            talk = Talk(
                f"cron-summary-{next(number)}",
                workload="cron",
                prefix="cron_summary",
                leads=PREFIXES["cron_summary"],
            )
            talk.add("user", tokens(rng, _DOCUMENT))
            talk.call(tokens(rng, _SUMMARY), event="summary", deadline_s=_BATCH_DEADLINE_S)
            yield talk.session(start_s)


def _length(prefix: str) -> int:
    return total_tokens(PREFIXES[prefix])
