"""Grade whole decisions on planted truths: `python -m tests.decision.planted
[--number 300] [--kind NAME] [--into FILE] [--jobs N]`.

Each deployment is a profile that is written with a truth in it, a trace, and a whole
`agentload.decide` in virtual time. Kinds take turns; trace, size of the effect, noise, seed and
budget are drawn. What is true of turn latency and of the agents that a GPU carries is computed
from hours of a closed loop of the whole trace: the same engines without noise, the first third
of the time dropped, the turns of both arms paired and each weighing the same (`hours`). What is
true of answers follows from the accuracy table and the lengths of the trace's calls.

A decision is **wrong** where it contradicts that truth, **open** where it says "test
further", **bounded** where it is right up to a length that it names. It
**overreaches** where it speaks of lengths that were neither timed nor asked: a
bounded one beyond the longest of them, an unbounded one where more of the trace lies
beyond than DESIGN allows (5 % of calls, 10 % of tokens). Wrong decisions that are
right by what the one start of each server added are counted apart, as `by its start`.

The table has, by kind: deployments, wrong, by its start, overreaching, bounded,
open, the share of the clear ones that is decided over the full range, minutes of
the budget and CPU seconds in the median. A promise fails where wrong is above 2 %,
a verdict overreaches, or fewer than 80 % of the clear ones are decided. What is
finished is kept in FILE, as long as nothing that decides changes; truths longer.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias

import duckdb
import yaml

import agentload
from agentload.builtin import find
from agentload.decision.play import Outcome
from agentload.emulator.steptime import NoiseSource
from agentload.errors import AgentloadError
from agentload.model.apart import CONTEXT_SWEEP, STEP_TIMES
from agentload.model.profile import ArmProfile, Noise
from agentload.model.rows import CallRow
from agentload.model.trace import Trace
from agentload.model.walk import contexts
from agentload.remote.cores import cores
from agentload.run.files import read_traces
from agentload.run.servers import arms_of
from agentload.study.kinds import Decide
from agentload.study.parts import Load, Slo, TraceRef, Virtual
from agentload.tracefile import files
from agentload.workloads import catalog
from tests.decision.deployments import Truth
from tests.decision.hours import Timed, steady_calls, timed

ROOT: Final = Path(agentload.__file__).parents[1]
ROOMS: Final = (
    "advisor",
    *(
        f"agentload/{room}"
        for room in (
            "ask",
            "decision",
            "dispatch",
            "emulator",
            "endpoints",
            "evidence",
            "kvmath",
            "layout",
            "model",
        )
    ),
    *(
        f"agentload/{room}"
        for room in (
            "prompts",
            "report",
            "run",
            "store",
            "study",
            "tasks",
            "tracefile",
            "virtual",
            "workloads",
        )
    ),
)
"""What decides."""
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
with one start of each server a switch needs a gain of 8 %.
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

Word: TypeAlias = Literal["right", "wrong", "by its start", "bounded", "open"]
Asked: TypeAlias = Literal["truth", "said"]
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


def hours(
    planted: Planted, *, sessions: int, seconds: float, arms: tuple[str, ...] = ARMS
) -> dict[str, list[CallRow]]:
    """Play hours of a deployment's trace, and return each arm's calls while the load is steady."""
    served = {
        arm.name: arm for arm in _arms(replace(planted, server={}).profile())
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
        f"{_sources(PLAYING)}"
    )
    return blake2b(told.encode(), digest_size=8).hexdigest()


# --- what is said ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What became of a decision."""

    word: str
    """Its verdict on the candidate; "refused" where it ended with an error."""
    headline: str
    because: str
    pays: str
    """Whether the candidate is faster or cheaper, in the verdict's own word."""
    reach: float | None
    """Longest context that the verdict says it holds for; None where it names none."""
    timed: int
    """Longest context of a turn that was timed."""
    asked: int
    """Longest context of a question."""
    ending: str
    minutes: float
    cpu_s: float


def decided(planted: Planted) -> Said:
    """Decide on a deployment."""
    with TemporaryDirectory() as folder:
        study, database = planted.study(Path(folder)), Path(folder) / "x.duckdb"
        before = time.process_time()
        try:
            ended = agentload.decide(study, db=database, run_id=f"planted-{planted.number}")
        except AgentloadError as error:
            return _refused(error, time.process_time() - before)
        return said(ended, database, cpu_s=time.process_time() - before)


def _refused(error: AgentloadError, cpu_s: float) -> Said:
    return Said(
        word="refused",
        headline=error.message,
        because=error.hint or "",
        pays="",
        reach=None,
        timed=0,
        asked=0,
        ending="refused",
        minutes=0.0,
        cpu_s=cpu_s,
    )


def said(ended: Outcome, database: Path, *, cpu_s: float) -> Said:
    """Read what a decision says, and the longest contexts behind it."""
    found = None if ended.document is None else ended.document
    verdict = (
        None
        if found is None
        else next((each for each in found.decision.server if each.arm == CANDIDATE), None)
    )
    timed_to, asked_to = _longest(database)
    reasons = (
        []
        if found is None or verdict is None
        else [found.why, verdict.reason, *(each.message for each in found.findings)]
    )
    return Said(
        word="test further" if verdict is None else verdict.verdict,
        headline="" if found is None else found.headline,
        because=" | ".join(reasons),
        pays="" if verdict is None else verdict.pays.state,
        reach=None if found is None else reach(json.loads(found.json())),
        timed=timed_to,
        asked=asked_to,
        ending=ended.ending,
        minutes=sum(each.minutes for each in ended.asked),
        cpu_s=cpu_s,
    )


def reach(document: Mapping[str, Any]) -> float | None:
    """Return up to which context a document says that its verdict
    on the candidate holds; None where it says nothing of the kind.
    """
    decision = document.get("decision", {})
    parts = [
        *(each for each in decision.get("server", ()) if each.get("arm") == CANDIDATE),
        decision.get("choice", {}),
    ]
    said = [part["holds_to"] for part in parts if part.get("holds_to") is not None]
    return float(said[0]) if said else None


def _longest(database: Path) -> tuple[int, int]:
    """Return the longest contexts that were timed in pairs, and asked."""
    apart = f"'{CONTEXT_SWEEP}', '{STEP_TIMES}'"
    with duckdb.connect(str(database), read_only=True) as connection:
        (turns,) = connection.execute(
            "SELECT max(context_tokens) FROM calls WHERE status = 'ok' AND NOT prime AND "
            f"workload NOT IN ({apart})"
        ).fetchall()
        (questions,) = connection.execute("SELECT max(context_tokens) FROM answers").fetchall()
    return turns[0] or 0, questions[0] or 0


# --- whether that is right ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one deployment."""

    planted: Planted
    known: Known
    said: Said

    @property
    def start(self) -> float:
        """Return by how much longer the candidate's steps were than
        the reference's by what its one start drew, as a log ratio.
        """
        factors = {
            arm.name: NoiseSource(
                Noise(restart_sigma=arm.noise.restart_sigma), seed=self.planted.seed, name=arm.name
            )
            .segment(0)
            .factor
            for arm in _arms(self.planted.profile())
        }
        return math.log(factors[CANDIDATE] / factors[REFERENCE])

    @property
    def graded(self) -> Word:
        """Grade it."""
        if self.is_open:
            return "open"
        if self.said.word in self.allowed(0.0):
            return "right" if self.said.reach is None else "bounded"
        return "by its start" if self.said.word in self.allowed(self.start) else "wrong"

    @property
    def is_open(self) -> bool:
        """Tell whether nothing was decided, or something that answers another question."""
        if self.planted.kind == "an SLO nobody meets":
            return not self.names_the_level and self.said.word != "use"
        if self.said.word == "refused":
            return not self.planted.is_twin
        return self.said.word == "test further"

    @property
    def names_the_level(self) -> bool:
        """Tell whether it says that no arm meets the service level."""
        return re.search(r"\bno arm (meets|holds)", self.said.headline, re.IGNORECASE) is not None

    @property
    def is_decided(self) -> bool:
        """Tell whether it is decided rightly over the full range;
        where longer calls are lost, up to about there is all there is.
        """
        lost, reach = self.known.lost_from, self.said.reach
        is_whole = lost is not None and reach is not None and reach >= WHOLE * lost
        return self.graded == "right" or (self.graded == "bounded" and is_whole)

    @property
    def overreaches(self) -> bool:
        """Tell whether it speaks of lengths that it did not cover."""
        said, word = self.said, self.said.word
        # What a single session misses, or a window refuses, longer contexts miss as well.
        is_too_slow = said.pays == "no" and not any(
            words in said.because for words in ("even with one session", "it refuses")
        )
        rests_on_speed = word in ("use", "no difference") or (word == "avoid" and is_too_slow)
        if not rests_on_speed or self.planted.kind in ("an SLO nobody meets", "twins"):
            return False
        covered = min(said.timed, said.asked) if word == "use" else said.timed
        if said.reach is not None:
            return said.reach > REACH_SLACK * covered
        return is_beyond(self.planted.trace, REACH_SLACK * covered)

    @property
    def is_clear(self) -> bool:
        """Tell whether it has to be decided over the full
        range: what is true lies far from every margin.
        """
        planted, known = self.planted, self.known
        if planted.kind in ("an SLO nobody meets", "twins") or known.lost_from is not None:
            return True
        if known.points:
            return known.points <= -200 * MARGIN
        if known.carries is not None and planted.agents is not None:
            low, high = sorted(known.carries.values())
            return high >= FAR_AGENTS * low
        return abs(math.log1p(known.change)) >= FAR * math.log1p(MARGIN)

    def allowed(self, start: float) -> frozenset[str]:
        """Return the words that are no mistake, where
        the one start of each server added so much.
        """
        planted, known = self.planted, self.known
        if planted.kind == "an SLO nobody meets":
            return frozenset(
                {self.said.word} if self.names_the_level and self.said.word != "use" else ()
            )
        if planted.is_twin:
            return frozenset(
                {"no difference", *(("refused",) if "same" in self.said.headline else ())}
            )
        is_short = (
            self.said.reach is not None
            and known.lost_from is not None
            and self.said.reach <= REACH_SLACK * known.lost_from
        )
        if known.lost_from is not None and not is_short:
            return frozenset({"avoid", "broken"})  # no scales mend it
        if known.points < -100 * MARGIN and not is_short:
            return frozenset({"avoid", "calibrate", "broken"})
        if known.carries is not None and planted.agents is not None:
            return self._by_gpus(known, planted.agents)
        return self._by_latency(start)

    def _by_latency(self, start: float) -> frozenset[str]:
        change = math.log1p(self.known.change)
        if self.said.reach is not None:
            band = min(BANDS, key=lambda each: abs(each - (self.said.reach or 0.0)))
            change = math.log1p(self.known.change_to[str(band)])
        true = Truth(gain=-(change + start) / math.log1p(MARGIN), agents=None, points=0.0)
        return frozenset(
            word
            for word in ("use", "avoid", "calibrate", "no difference")
            if not true.is_wrong(word)
        )

    def _by_gpus(self, known: Known, agents: int) -> frozenset[str]:
        """Return what is right by GPUs at the peak; where
        these may be equal, what latency says is right too.
        """
        low, high = ((known.carries or {}).get(arm, 0) for arm in ARMS)
        if not low or not high:
            return frozenset({"use"} if high else {"avoid"} if low else {"no difference"})
        saved = known.gpus(REFERENCE, agents) - known.gpus(CANDIDATE, agents)
        is_near = abs(math.log(high / low)) <= NEAR_AGENTS
        by_gpus = {"use"} if saved >= 1 else {"avoid"} if saved <= -1 else {"no difference"}
        return (
            frozenset(by_gpus | {"no difference"} | self._by_latency(0.0))
            if is_near
            else frozenset(by_gpus)
        )


@cache
def _arms(profile: str) -> tuple[ArmProfile, ...]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "planted.yaml"
        path.write_text(profile, encoding="utf-8")
        return arms_of(str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What a table says of the deployments of one kind."""

    rows: Sequence[Row]

    def count(self, word: Word) -> int:
        """Count the decisions that are graded so."""
        return sum(row.graded == word for row in self.rows)

    @property
    def clear(self) -> list[Row]:
        """Return those that have to be decided over the full range."""
        return [row for row in self.rows if row.is_clear]

    @property
    def decided(self) -> float:
        """Return the share of the clear ones that are decided rightly, over the full range."""
        return (
            sum(row.is_decided for row in self.clear) / len(self.clear) if self.clear else math.nan
        )

    @property
    def wrong(self) -> float:
        """Return the share that is wrong by more than its one start."""
        return self.count("wrong") / len(self.rows)

    @property
    def overreaching(self) -> int:
        """Count the decisions that speak of lengths that they did not cover."""
        return sum(row.overreaches for row in self.rows)

    def line(self, name: str) -> str:
        """Return a row of the table."""
        words = " | ".join(str(self.count(word)) for word in ("wrong", "by its start"))
        rest = " | ".join(str(self.count(word)) for word in ("bounded", "open"))
        share = f"{self.decided:.0%} of {len(self.clear)}" if self.clear else "–"
        minutes = statistics.median(row.said.minutes for row in self.rows)
        budget = statistics.median(
            60 * row.said.minutes / row.planted.budget_s for row in self.rows
        )
        cpu = statistics.median(row.said.cpu_s for row in self.rows)
        spent = f"{minutes:.0f} ({budget:.0%}) | {cpu:.1f}"
        return (
            f"| {name} | {len(self.rows)} | {words} | {self.overreaching} | {rest} | {share} | "
            f"{spent} |"
        )


WRONG_MOST: Final = 0.02
DECIDED_LEAST: Final = 0.80


def rendered(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table, what is wrong one by one, and the closing line."""
    yield (
        "| kind | deployments | wrong | by its start | overreaching | bounded | open | clear "
        "ones decided | minutes | CPU s |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for kind in KINDS:
        own = [row for row in rows if row.planted.kind == kind]
        if own:
            yield Column(rows=own).line(kind)
    whole = Column(rows=rows)
    yield whole.line("all")
    yield ""
    for row in rows:
        if row.graded == "wrong" or row.overreaches:
            yield _told(row)
    cpu = {
        name: [row.said.cpu_s for row in rows if bool(row.planted.slo) is wanted]
        for name, wanted in (("without", False), ("with", True))
    }
    medians = ", ".join(
        f"{statistics.median(own):.1f} s {name} capacity" for name, own in cpu.items() if own
    )
    yield (
        f"{len(rows)} deployments: wrong {whole.wrong:.1%}, overreaching {whole.overreaching}, "
        f"decided {whole.decided:.0%} of {len(whole.clear)} clear ones; CPU {medians} in the median"
    )


def _told(row: Row) -> str:
    said, known = row.said, row.known
    reached = "" if said.reach is None else f" to {said.reach:,.0f}"
    carries = "" if known.carries is None else f", carries {known.carries}"
    lost = "" if known.lost_from is None else f", lost from {known.lost_from:,}"
    grade = f"{row.graded}{', overreaches' if row.overreaches else ''}"
    return (
        f"{row.planted.number} {row.planted.kind} ({row.planted.trace}): {grade}: "
        f"“{said.word}{reached}”, {said.headline}; "
        f"true: {known.change:+.1%}, {known.points:+.1f} pp{carries}{lost}; timed to "
        f"{said.timed:,}, asked to {said.asked:,}"
    )


def is_kept(whole: Column) -> bool:
    """Tell whether what is promised holds."""
    return (
        whole.wrong <= WRONG_MOST and not whole.overreaching and not whole.decided < DECIDED_LEAST
    )


# --- as a tool ---


@cache
def _sources(rooms: tuple[str, ...]) -> str:
    sources = blake2b(digest_size=8)
    for room in rooms:
        for path in sorted((ROOT / room).rglob("*.py")):
            sources.update(path.read_bytes())
    return sources.hexdigest()


def row_key(planted: Planted) -> str:
    """Return what a decision depends on."""
    return blake2b(
        f"{asdict(planted)} {planted.profile()} {_sources(ROOMS)}".encode(), digest_size=8
    ).hexdigest()


def kept(into: Path | None) -> dict[str, dict[str, Any]]:
    """Return what a file holds, by key; a line that was cut off is left out."""
    found: dict[str, dict[str, Any]] = {}
    for line in (
        into.read_text(encoding="utf-8").split("\n") if into is not None and into.exists() else ()
    ):
        if line.endswith("}"):
            each = json.loads(line)
            found[each["key"]] = each
    return found


def work(kind: Asked, planted: Planted) -> dict[str, Any]:
    """Work out what is true of a deployment, or decide on it; return the line that is kept."""
    if kind == "truth":
        return {"key": truth_key(planted), "kind": planted.kind, "truth": asdict(truth(planted))}
    return {
        "key": row_key(planted),
        "number": planted.number,
        "kind": planted.kind,
        "said": asdict(decided(planted)),
    }


def played(drawn: Sequence[Planted], *, into: Path | None = None, jobs: int = 1) -> list[Row]:
    """Decide on deployments, and grade them; what a file holds already is read from it."""
    found = kept(into)
    missing: dict[str, tuple[Asked, Planted]] = {}
    for each in drawn:
        missing |= {truth_key(each): ("truth", each), row_key(each): ("said", each)}
    asked = [each for key, each in missing.items() if key not in found]
    with cores(processes=jobs) as pool:
        for line in pool.map(work, *zip(*asked, strict=True)) if asked else ():
            found[line["key"]] = line
            if into is not None:
                into.parent.mkdir(parents=True, exist_ok=True)
                with into.open("a", encoding="utf-8") as file:
                    file.write(f"{json.dumps(line)}\n")
    return [
        Row(
            planted=each,
            known=Known(**found[truth_key(each)]["truth"]),
            said=Said(**found[row_key(each)]["said"]),
        )
        for each in drawn
    ]


def main(
    arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write
) -> int:
    """Print the table; return 3 when a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--seed", type=int, default=27)
    parser.add_argument("--kind", choices=KINDS, help="only deployments of this kind")
    parser.add_argument(
        "--into",
        type=Path,
        default=Path("build/planted.jsonl"),
        help="keep what is finished here, and continue from it",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    drawn = [planted(number, options.seed) for number in range(options.number)]
    rows = played(
        [each for each in drawn if options.kind in (None, each.kind)],
        into=options.into,
        jobs=options.jobs,
    )
    write("\n".join(rendered(rows)) + "\n")
    return 0 if is_kept(Column(rows=rows)) else 3


if __name__ == "__main__":
    raise SystemExit(main())
