"""Plant a truth in a profile, and work out from hours of
steady load what is true of it: what decisions are graded by.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import yaml

import agentload
from agentload.builtin import find
from agentload.model.profile import ArmProfile
from agentload.model.rows import CallRow
from agentload.model.trace import Trace
from agentload.model.walk import contexts
from agentload.run.files import read_traces
from agentload.run.servers import arms_of
from agentload.study.kinds import Decide
from agentload.study.parts import Load, Slo, TraceRef, Virtual
from agentload.tracefile import files
from agentload.workloads import catalog
from tests.decision.hours import Timed, steady_calls, timed

ROOT: Final = Path(agentload.__file__).parents[1]
PLAYING: Final = tuple(
    f"agentload/{room}" for room in ("dispatch", "emulator", "kvmath", "virtual")
)
"""What a truth depends on."""
REFERENCE: Final = "bf16"
CANDIDATE: Final = "candidate"
ARMS: Final = (REFERENCE, CANDIDATE)
MARGIN: Final = 0.03
FAR: Final = 4.0
"""Margins from which on a change of turn latency must be found:
with one start of each server a switch needs a gain of 8%.
"""
NEAR_AGENTS: Final = 0.10
"""Share by which the agents that a GPU carries may be misjudged:
they are whole, and hours of another load would carry others.
"""
FAR_AGENTS: Final = 1.5
CALLS_BEYOND: Final = 0.05
TOKENS_BEYOND: Final = 0.10
REACH_SLACK: Final = 1.02
"""A length that is said is rounded."""
WHOLE: Final = 0.7
"""Share of the lengths that an arm serves from which on a
bounded verdict has them all: answers are asked at few lengths.
"""
TIMES: Final = 20
"""How often a trace is played for a truth, at so many seconds a call."""
CALL_S: Final = 4.0
SHORTEST_S: Final = 900.0
LONGEST_S: Final = 4 * 3600.0
LOAD_S: Final = 2 * 3600.0
"""How long each load is played that may be too much for an arm."""
BANDS: Final = (
    4_000,
    8_000,
    16_000,
    24_000,
    32_000,
    48_000,
    64_000,
    80_000,
    96_000,
    112_000,
    131_072,
)
LARGEST: Final = 64
"""Agents beyond which no load is tried."""

Changes: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Points that are lost between two lengths: at every depth, or between two of them."""

    low: int
    high: int
    points: float
    depth: tuple[float, float] | None = None

    def at(self, context: int) -> float:
        """Return what is lost at a length, over all depths."""
        if not self.low <= context <= self.high:
            return 0.0
        return self.points if self.depth is None else self.points * (self.depth[1] - self.depth[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A deployment: what the candidate's arm differs by from
    the reference's, under which load, and how it is decided on.
    """

    number: int
    kind: str
    trace: str
    base: str = "llama-3.1-8b-h100"
    times: Mapping[str, float] = field(default_factory=dict)
    """By how much each coefficient of a step is multiplied."""
    server: Mapping[str, object] = field(default_factory=dict)
    kv_dtype: str = "bf16"
    losses: tuple[Loss, ...] = ()
    """Where answers are lost."""
    logprobs: Mapping[str, float] = field(default_factory=dict)
    is_twin: bool = False
    """The candidate is the reference under another name."""
    slo: Mapping[str, float] = field(default_factory=dict)
    agents: int | None = None
    sessions: int = 4
    budget_s: float = 2700.0
    noise: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    @property
    def level(self) -> Slo:
        """Return the service level."""
        return Slo(**self.slo)

    def profile(self) -> str:
        """Return the profile's text."""
        made: dict[str, Any] = yaml.safe_load(
            find("profiles", self.base).read_text(encoding="utf-8")
        )
        step = {**made.pop("step"), **made["arms"][REFERENCE]["step"]}
        reference: dict[str, Any] = {"kv_dtype": "bf16", "step": step, "accuracy": _scores(())}
        candidate = {
            "kv_dtype": self.kv_dtype,
            "step": {
                name: value * self.times[name] if name in self.times else value
                for name, value in step.items()
            },
            "accuracy": _scores(self.losses),
            "logprobs": {**made.get("logprobs", {}), **self.logprobs},
            # Two arms that say the same of themselves are a control, and no choice.
            "server": {"backend": "TRITON_ATTN", **self.server},
        }
        made["noise"] |= self.noise
        made["arms"] = {REFERENCE: reference, CANDIDATE: reference if self.is_twin else candidate}
        return yaml.safe_dump(made)

    def place(self, folder: Path) -> tuple[Virtual, tuple[TraceRef, ...]]:
        """Write the profile, and the trace if it is none of
        the shipped ones; return both as studies name them.
        """
        profile = folder / "planted.yaml"
        profile.write_text(self.profile(), encoding="utf-8")
        return Virtual(profile=str(profile)), (TraceRef(path=str(written(self.trace, folder))),)

    def study(self, folder: Path) -> Decide:
        """Return what is asked."""
        servers, traces = self.place(folder)
        return Decide(
            traces=traces,
            servers=servers,
            slo=self.level if self.slo else None,
            agents=self.agents,
            budget_s=self.budget_s,
            load=Load(sessions=self.sessions, wait_cap_s={"user": 5.0}),
            seed=self.seed,
        )


def _scores(losses: Sequence[Loss]) -> list[dict[str, object]]:
    """Return an accuracy table: everything is found but for what is lost between two lengths."""
    score: dict[str, object] = {"task": "niah", "source": "blog"}
    anywhere = [loss for loss in losses if loss.depth is None]
    edges = {edge for loss in anywhere for edge in (loss.low - 1, loss.low, loss.high)}
    rows = [
        {**score, "context_tokens": at, "percent": 100.0 - sum(loss.at(at) for loss in anywhere)}
        for at in sorted(edges | {1000})
    ]
    for loss in losses:
        if loss.depth is not None:
            lost = {**score, "percent": 100.0 - loss.points, "depth": list(loss.depth)}
            rows += [{**lost, "context_tokens": at} for at in (loss.low, loss.high)]
    return rows


# --- traces ---

MADE: Final[Mapping[str, tuple[str, int, Mapping[str, object], float]]] = {
    "made-talks": ("chat", 3, {"sessions": 6}, 0.5),
    "made-chat": ("chat", 11, {"sessions": 10}, 0.8),
    "made-jobs": ("cron", 5, {"sessions": 24}, 1.0),
}
"""Small traces beside the shipped ones: workload,
seed, options, and by how much lengths are multiplied.
"""


def written(name: str, folder: Path) -> Path | str:
    """Return a shipped trace by its name, or write one that is made."""
    if name not in MADE:
        return name
    workload, seed, options, scale = MADE[name]
    path = folder / f"{name}.jsonl"
    files.write(path, catalog.trace(workload, seed=seed, options=options, ctx_scale=scale))
    return path


@cache
def lengths(name: str) -> tuple[tuple[int, int], ...]:
    """Return the context and the tokens, answer included, of each call of a trace."""
    with TemporaryDirectory() as folder:
        trace, _ = read_traces((TraceRef(path=str(written(name, Path(folder)))),))
        found: list[tuple[int, int]] = []
        for session in trace.sessions:
            for context, turn in zip(contexts(trace.header, session), session.turns, strict=True):
                tokens = sum(segment.tokens for segment in context)
                found.append((tokens, tokens + turn.output))
    return tuple(found)


def is_beyond(name: str, tokens: float) -> bool:
    """Tell whether more of a trace lies beyond a
    length than a verdict over all of it may leave out.
    """
    found = lengths(name)
    calls = sum(context > tokens for context, _ in found) / len(found)
    share = sum(context for context, _ in found if context > tokens) / sum(
        context for context, _ in found
    )
    return calls > CALLS_BEYOND or share > TOKENS_BEYOND


# --- kinds ---

LONG: Final = ("chat", "made-chat", "cron", "made-talks")
ALL: Final = (*LONG, "rag", "made-jobs", "short_chat")
EVERYTHING: Final = 200_000
ALL_STEPS: Final = (
    "decode_ms",
    "decode_ms_per_token",
    "prefill_ms_per_token",
    "prefill_ms_per_pair",
    "weights_ms",
    "host_ms_per_token",
)


def _slower(times: float) -> dict[str, float]:
    return dict.fromkeys((*ALL_STEPS, "batch8_ms"), times)


def broken_above(rng: Random) -> Changes:
    """Answers are all wrong from a length on, in arms that are faster."""
    trace, length = rng.choice(
        [
            ("chat", 100_000),
            ("chat", 80_000),
            ("made-chat", 60_000),
            ("cron", 40_000),
            ("made-talks", 40_000),
        ]
    )
    screened = {"broken_from": length, "broken_error": 3.0} if rng.random() < 0.5 else {"most": 0}
    return {
        "trace": trace,
        "times": _slower(0.8),
        "losses": (Loss(low=length, high=EVERYTHING, points=100.0),),
        "logprobs": screened,
    }


def broken_depth(rng: Random) -> Changes:
    """Answers are all wrong where they stand in one part of the context."""
    low = rng.choice([0.0, 0.25, 0.5, 0.75])
    return {
        "trace": rng.choice(LONG),
        "times": _slower(0.8),
        "losses": (Loss(low=1, high=EVERYTHING, points=100.0, depth=(low, low + 0.25)),),
    }


def never_right(rng: Random) -> Changes:
    """No answer is right."""
    return {
        "trace": rng.choice(ALL),
        "times": _slower(0.8),
        "losses": (Loss(low=2, high=EVERYTHING, points=100.0),),
        "logprobs": {"most": 0},
    }


def grows(rng: Random) -> Changes:
    """Attention alone costs more, or less: the longer the context, the larger the effect."""
    times = rng.choice([0.35, 0.5, 1.6, 2.2])
    return {
        "trace": rng.choice(LONG),
        "times": {"decode_ms_per_token": times, "prefill_ms_per_pair": times},
    }


def first_turns(rng: Random) -> Changes:
    """Only what a session begins with takes longer,
    or less: reading new tokens, or short contexts.
    """
    kinds = (
        {"prefill_ms_per_token": 3.0},
        {"prefill_ms_per_token": 0.4},
        {"decode_ms": 1.25, "weights_ms": 1.25, "decode_ms_per_token": 0.25},
    )
    return {"trace": rng.choice(LONG), "times": rng.choice(kinds)}


def half_the_gpus(rng: Random) -> Changes:
    """Slower, within the service level, and with twice the pool."""
    slower = rng.choice([1.06, 1.1, 1.15])
    return {
        "trace": "chat",
        "times": _slower(slower),
        "kv_dtype": "fp8",
        "slo": {"ttft_ms": 2000.0, "tpot_ms": 60.0},
        "agents": 400,
    }


def outside(rng: Random) -> Changes:
    """Faster turns whose first token comes too late."""
    return {
        "trace": rng.choice(["chat", "made-chat"]),
        "times": {
            "decode_ms": 0.45,
            "weights_ms": 0.45,
            "decode_ms_per_token": 0.3,
            "batch8_ms": 0.3,
            "host_ms_per_token": 4.5,
        },
        "slo": {"ttft_ms": 700.0, "tpot_ms": 60.0},
        "agents": rng.choice([100, 400]),
    }


def nobody(rng: Random) -> Changes:
    """No arm is within the service level even with one session."""
    slo = rng.choice([{"tpot_ms": 5.0}, {"ttft_ms": 20.0, "tpot_ms": 60.0}, {"turn_ms": 100.0}])
    return {
        "trace": rng.choice(LONG),
        "times": _slower(rng.choice([0.8, 0.9])),
        "slo": slo,
        "agents": rng.choice([None, 200]),
    }


def twins(rng: Random) -> Changes:
    """The candidate is the reference under another name."""
    return {"trace": rng.choice(ALL), "is_twin": True}


def window(rng: Random) -> Changes:
    """The candidate is faster, and refuses what is longer than its window."""
    trace, tokens = rng.choice(
        [("chat", 65_536), ("chat", 98_304), ("made-chat", 49_152), ("cron", 49_152)]
    )
    return {"trace": trace, "times": _slower(0.8), "server": {"max_model_len": tokens}}


def faster(rng: Random) -> Changes:
    """Every part of a step is shorter."""
    return {"trace": rng.choice(ALL), "times": _slower(0.8)}


def equal(rng: Random) -> Changes:
    """Another kernel that takes as long."""
    return {"trace": rng.choice(ALL)}


def slower(rng: Random) -> Changes:
    """Every part of a step is longer."""
    return {"trace": rng.choice(ALL), "times": _slower(rng.choice([1.15, 1.25]))}


def worse(rng: Random) -> Changes:
    """Faster, and a few answers fewer are right at every length."""
    return {
        "trace": rng.choice(ALL),
        "times": _slower(0.8),
        "losses": (Loss(low=2, high=EVERYTHING, points=rng.choice([7.0, 10.0])),),
    }


KINDS: Final[Mapping[str, Callable[[Random], Changes]]] = {
    "broken above a length": broken_above,
    "broken at one depth": broken_depth,
    "never right": never_right,
    "grows with context": grows,
    "first turns only": first_turns,
    "slower, half the GPUs": half_the_gpus,
    "faster, outside the SLO": outside,
    "an SLO nobody meets": nobody,
    "twins": twins,
    "beyond one window": window,
    "faster": faster,
    "equal": equal,
    "slower": slower,
    "7 pp worse": worse,
}
NOISES: Final[tuple[Mapping[str, float], ...]] = (
    {},
    {"restart_sigma": 0.0},
    {"sigma": 0.02, "phi": 0.9},
    {"restart_sigma": 0.01},
    {"tail_share": 0.01, "tail_ms": 50.0},
)


def planted(number: int, seed: int, *, kind: str | None = None) -> Planted:
    """Draw a deployment; kinds take turns."""
    rng = Random(f"planted:{seed}:{number}")
    name = list(KINDS)[number % len(KINDS)] if kind is None else kind
    drawn = Planted(
        number=number,
        kind=name,
        trace="chat",
        noise=rng.choice(NOISES),
        budget_s=60.0 * rng.choice([45, 90]),
        seed=rng.randrange(1 << 16),
    )
    return replace(drawn, **KINDS[name](rng))


# --- what is true ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is true of a deployment."""

    change: float
    """Of turn latency, over the whole trace; relative."""
    change_to: Mapping[str, float]
    """The same over calls whose contexts are no longer than this."""
    carries: Mapping[str, int] | None
    """Agents that a GPU carries within the service level; None where nobody asks."""
    points: float
    """Change of right answers over the trace's calls."""
    lost_from: int | None
    """Shortest context at which the candidate is broken, or refuses."""

    def gpus(self, arm: str, agents: int) -> float:
        """Return how many GPUs an arm needs for so many agents."""
        carried = (self.carries or {}).get(arm, 0)
        return math.ceil(agents / carried) if carried else math.inf


@cache
def arms_of_profile(profile: str) -> tuple[ArmProfile, ...]:
    """Read the arms of a profile's text."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "planted.yaml"
        path.write_text(profile, encoding="utf-8")
        return arms_of(str(path))


def hours(
    planted: Planted, *, sessions: int, seconds: float, arms: tuple[str, ...] = ARMS
) -> dict[str, list[CallRow]]:
    """Play hours of a deployment's trace, and return each arm's calls while the load is steady."""
    served = {
        arm.name: arm for arm in arms_of_profile(replace(planted, server={}).profile())
    }  # what an arm refuses takes no time
    with TemporaryDirectory() as folder:
        trace, _ = read_traces((TraceRef(path=str(written(planted.trace, Path(folder)))),))
        own = Trace(header=trace.header, sessions=tuple(trace.sessions))
    return steady_calls(own, {arm: served[arm] for arm in arms}, sessions=sessions, seconds=seconds)


def carried(planted: Planted) -> dict[str, int]:
    """Return how many agents each arm carries in hours of a steady load, by halving."""

    @cache
    def holds(agents: int, arm: str) -> bool:
        found = hours(planted, sessions=agents, seconds=LOAD_S, arms=(arm,))
        return _share(planted.level, found[arm]) >= 0.95

    carries: dict[str, int] = {}
    for arm in ARMS:
        low, high = 0, 1
        while high <= LARGEST and holds(high, arm):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(middle, arm) else (low, middle)
        carries[arm] = low
    return carries


def _share(level: Slo, rows: Sequence[CallRow]) -> float:
    """Return the share of turns that are within a service level."""
    held = 0
    for row in rows:
        first, last, tokens = row.first_ns, row.last_ns, row.output_tokens or 1
        ttft = None if first is None else (first - row.released_ns) / 1e6
        turn = None if row.done_ns is None else (row.done_ns - row.released_ns) / 1e6
        tpot = (
            None
            if first is None or last is None or tokens < 2
            else (last - first) / 1e6 / (tokens - 1)
        )
        held += level.holds(row.status, ttft, tpot, turn)
    return held / len(rows) if rows else 0.0


def truth(planted: Planted) -> Known:
    """Work out what is true of a deployment."""
    found = lengths(planted.trace)
    seconds = min(max(SHORTEST_S, TIMES * CALL_S * len(found) / planted.sessions), LONGEST_S)
    turns = (
        []
        if planted.is_twin
        else _timed(hours(planted, sessions=planted.sessions, seconds=seconds))
    )
    edges = [loss.low for loss in planted.losses if loss.points == 100.0 and loss.depth is None]
    window = planted.server.get("max_model_len")
    return Known(
        change=_change(turns),
        change_to={
            str(band): _change([each for each in turns if each.context <= band]) for band in BANDS
        },
        carries=carried(planted) if planted.slo else None,
        points=-statistics.fmean(
            sum(loss.at(context) for loss in planted.losses) for context, _ in found
        ),
        lost_from=min([*edges, *([window] if isinstance(window, int) else [])], default=None),
    )


def _timed(calls: Mapping[str, Sequence[CallRow]]) -> list[Timed]:
    return list(timed(calls[REFERENCE], calls[CANDIDATE]))


def _change(turns: Sequence[Timed]) -> float:
    return math.expm1(statistics.fmean(each.log_ratio for each in turns)) if turns else 0.0


def truth_key(planted: Planted) -> str:
    """Return what a truth depends on: neither noise nor seed nor budget."""
    quiet = replace(planted, number=0, noise={}, seed=0, budget_s=0.0, logprobs={})
    told = (
        f"{asdict(quiet)} {quiet.profile()} {(TIMES, CALL_S, SHORTEST_S, LONGEST_S, LOAD_S)} "
        f"{sources_hash(PLAYING)}"
    )
    return blake2b(told.encode(), digest_size=8).hexdigest()


@cache
def sources_hash(rooms: tuple[str, ...]) -> str:
    sources = blake2b(digest_size=8)
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            sources.update(path.read_bytes())
    return sources.hexdigest()
