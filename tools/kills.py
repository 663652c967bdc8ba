"""Kill verbs at random moments, and count what is lost: `python -m tools.kills --number 100`.

The servers write down which answers left them whole. Of those that were complete before the
last second of a run (and what a busy machine takes to wake the client) none may be missing,
none may be there twice, and what was killed resumes: a replay, questions and a decision with
`--resume`, a sweep with `--into`, a job with its next execution, a load with the next load.
`stages` is a decision that ends with capacity, as its load fills a small pool, and `answers` one
that asks about accuracy, as its load leaves room: both are killed as often in each of their stages,
or in those that `--stages` names. Trials are kept as a whole: those that were under way are lost.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final, Literal, NamedTuple, get_args

import duckdb
import msgspec
import yaml

from agentload.decision.look import Criterion
from agentload.emulator.steptime import slower_arm
from agentload.kvmath.layout import bytes_per_token
from agentload.model.profile import ArmProfile
from agentload.model.rows import ProbeRow
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.servers import arms_of
from agentload.serve.processes import start
from agentload.serve.server import ServerOptions
from agentload.store.journal import Writer, read
from agentload.store.places import journal_folder, journalled_runs
from agentload.tracefile.files import write
from agentload.verdict.policy import DECISION
from tests.store.rows import block_row, call, run_row

Verb = Literal["replay", "workers", "eval", "sweep", "decide", "stages", "answers", "watch", "load"]
AGENTLOAD: Final = (sys.executable, "-m", "agentload")
DECISIONS: Final = frozenset({"decide", "stages", "answers"})
A_RUN: Final = 8
"""Kills of one run, before it may come to its end."""
CALLS: Final = 30_000
PAIRS: Final = 12
QUICK_STAGES: Final = """
import math, runpy
from advisor.gates import client
from agentload.decision import carried_load, single_session, twin
from agentload.live import health
carried_load.BRACKET_S = single_session.TRIAL_S = (2.0, 2.0)
carried_load.TRIALS, twin.REPEATS = 2, 0
health.MAX_SEND_LAG_MS = health.MAX_STALL_MS = health.MAX_COALESCED_SHARE = math.inf
client._faults = lambda *_: iter(())
runpy.run_module("agentload", run_name="__main__")
"""
"""Runs a decision with few and short trials: its stages take seconds, so each of them is killed.

A client that is late ends no decision, so a busy machine comes to the last stage too.
"""


class World(NamedTuple):
    """A decision that comes to the stages in which it is killed."""

    stages: tuple[Criterion, ...]
    slower: float
    """How much longer the steps of the arm in use take: a few pairs settle speed for the other."""
    agents: int
    """Agents at the peak."""


WORLDS: Final[Mapping[Verb, World]] = {
    # These agents fill the pool, so load counts.
    "stages": World(("service level", "canary", "screen", "speed", "capacity"), 8.0, 16),
    "answers": World(("accuracy",), 2.0, 8),
}
"""No run is there yet in the checks, and no world has twins: step times are not asked."""
STAGES: Final = tuple(stage for world in WORLDS.values() for stage in world.stages)
POOL_TOKENS: Final = 16_384
PREFIX_TOKENS: Final = 1_500
TRIED: Final = frozenset({"service level", "capacity"})
"""Criteria whose calls no run keeps, only what came of a trial."""
ENDING_S: Final = 900.0
"""Time that what was killed has to come to its end, on a machine with other work."""
LAST_NS: Final = 1_500_000_000
"""Time before a kill within which an answer may be lost.

A second, and half of one until a client whose machine is busy has seen the answer.
"""

NAMED: Final = 32
"""Letters of a call's name in a run.

The server gives shorter names to other calls, such as a check's before a decision.
"""


@dataclass(slots=True)
class Count:
    """Results of the kills of one verb."""

    starts: int = 0
    """How often the verb was started: some come to their end before they are killed."""
    kills: int = 0
    answers: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    """Error output of commands that did not resume."""
    stages: Counter[str] = field(default_factory=Counter)
    """What a decision was asking when it was killed."""

    @property
    def is_clean(self) -> bool:
        """Whether nothing was lost, stored twice or stuck."""
        return not (self.lost or self.twice or self.stuck)


class Stored(NamedTuple):
    """A call or an answer as a run holds it."""

    run: str
    request_id: str


class LookSpan(NamedTuple):
    """A question of a decision, from its beginning to that of the next one."""

    criterion: str
    began_ns: int
    ended_ns: int


def killed(
    verb: Verb,
    number: int,
    *,
    folder: Path,
    seed: int,
    a_run: int = A_RUN,
    stages: Sequence[Criterion] = (),
) -> Count:
    """Kill a verb *number* times, each of its runs *a_run* times, or thrice as often in stages."""
    a_run *= 3 if verb in WORLDS else 1
    most = Counter[str](dict.fromkeys(stages, math.ceil(number / max(1, len(stages)))))
    rng, count = Random(f"{seed} {verb}"), Count()
    if verb == "load":
        _loads(number, folder, rng, count)
        return count
    kills_ns: list[int] = []
    stored: list[Stored] = []
    tried: list[LookSpan] = []
    with _servers(folder, verb) as endpoints:
        while count.starts < number:
            database = folder / f"x{count.starts}.duckdb"
            command = _command(verb, endpoints, database)
            for _ in range(min(a_run, number - count.starts)):
                on = [*command, *_on(verb, database)]
                due = _due(verb, database, rng, most - count.stages)
                count.starts += 1
                if _was_killed(on, rng, due):
                    count.kills += 1
                    kills_ns.append(time.monotonic_ns())
                    count.stages.update(each.criterion for each in _looks(database)[-1:])
                elif verb in WORLDS:
                    break  # it came to its end, and comes to no stage any more
            done = completed([*command, *_on(verb, database)])
            if not _has_ended(verb, done):
                count.stuck.append(done.stderr)
            loaded = completed([*AGENTLOAD, "runs", "load", "--db", str(database)])
            if loaded.returncode:
                count.stuck.append(loaded.stderr)
                continue
            stored += stored_in(database)
            count.stuck += asked_again(database)
            tried += [each for each in _looks(database) if each.criterion in TRIED]
            with duckdb.connect(str(database), read_only=True) as connection:
                pairs = connection.execute(
                    "SELECT pair FROM blocks WHERE void IS NULL GROUP BY pair, salt HAVING "
                    "count(DISTINCT arm) = 2"
                )
                whole = sorted(pair for (pair,) in pairs.fetchall())
            if verb in {"replay", "workers"} and whole != list(range(PAIRS)):
                count.stuck.append(f"whole are the pairs {whole}")
    count.twice = twice_of(stored)
    known = {each.request_id for each in stored}
    sent = list(_sent(folder, tried))
    count.answers = len(sent)
    count.lost = [
        name
        for name, ended_ns in sent
        if name not in known and not any(0 < kill - ended_ns < LAST_NS for kill in kills_ns)
    ]
    return count


def _sent(folder: Path, tried: Sequence[LookSpan]) -> Iterator[tuple[str, int]]:
    """Yield the whole answers that a run has to hold: all but those of trials."""
    for path in folder.glob("truth-*.jsonl"):
        for name, ended_ns in answered(path):
            if not any(each.began_ns < ended_ns < each.ended_ns for each in tried):
                yield name, ended_ns


def _due(verb: Verb, database: Path, rng: Random, wanted: Counter[str]) -> Callable[[], bool]:
    """Return what says when the random time until a kill starts: half of the kills come early."""
    if verb in WORLDS:
        return partial(_is_wanted_stage, database, wanted, len(_looks(database)))
    if journalled_runs(database) and rng.random() < 0.5:
        return _at_once
    return partial(_has_answered_since, database.parent, _answers(database.parent))


def _decision_rows(database: Path, outcome: str) -> list[ProbeRow]:
    journals = database.with_suffix(".journal").glob(f"*/{DECISION}.journal")
    rows = [row for path in journals for row in read(path, damaged=lambda _: None)]
    return [row for row in rows if isinstance(row, ProbeRow) and row.outcome == outcome]


def asked_again(database: Path) -> list[str]:
    """Return the questions that came to their end more than once in a run of a decision."""
    ended = Counter(
        f"{row.run_id}: {msgspec.json.decode(row.detail or '')['stage']}"
        for row in _decision_rows(database, "asked")
    )
    return [f"asked {number} times: {each}" for each, number in ended.items() if number > 1]


def _looks(database: Path) -> list[LookSpan]:
    """Return the questions of the decisions of a database, in their order."""
    asked = _decision_rows(database, "asking")
    apart_ns = time.time_ns() - time.monotonic_ns()
    begun = sorted(asked, key=lambda row: row.at_ns)
    began_ns = [row.at_ns - apart_ns for row in begun]
    return [
        LookSpan(msgspec.json.decode(row.detail or "")["stage"]["criterion"], *span)
        for row, span in zip(begun, pairwise([*began_ns, time.monotonic_ns()]), strict=True)
    ]


def stored_in(database: Path) -> list[Stored]:
    """Return all timed calls and answers of a database."""
    with duckdb.connect(str(database), read_only=True) as connection:
        found = connection.execute(
            "SELECT run_id, request_id FROM calls_row UNION ALL "
            "SELECT run_id, request_id FROM answers"
        ).fetchall()
    return [Stored(*each) for each in found]


def twice_of(stored: Sequence[Stored]) -> list[str]:
    """Return the calls that one run holds more than once.

    A decision carries answers from one of its runs to the next, so two runs may hold one answer.
    """
    times = Counter(each for each in stored if each.request_id)
    return sorted(each.request_id for each, number in times.items() if number > 1)


def completed(
    command: Sequence[str], *, within_s: float = ENDING_S
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; one that does not end in time fails, and says so."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=within_s
        )
    except subprocess.TimeoutExpired:
        late = f"{' '.join(command)}: not at its end after {within_s:.0f} s"
        return subprocess.CompletedProcess(command, returncode=-1, stdout="", stderr=late)


def answered(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the request id and end (ns) of each answer that a server sent whole."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")  # a server may be writing the last line
    for line in whole.splitlines():
        entry = msgspec.json.decode(line)
        # A call of one token only asks for the length of a prompt.
        if (
            entry.get("end") == "done"
            and entry["output_tokens"] > 1
            and len(entry["request_id"]) == NAMED
        ):
            yield entry["request_id"], entry["ended_ns"]


def _has_ended(verb: Verb, done: subprocess.CompletedProcess[str]) -> bool:
    """Return whether a command came to its end.

    On a busy machine a decision may end because it cannot measure.
    """
    match verb:
        case "watch":
            return done.returncode in (0, 3)
        case "decide" | "stages" | "answers" if "this machine cannot measure" in done.stderr:
            return done.returncode == 1
        case _:
            return done.returncode == 0


@contextmanager
def _servers(folder: Path, verb: Verb) -> Iterator[str]:
    truth = folder / "truth.jsonl"
    # At high speed a decision ends, as it cannot separate chunks.
    speed = 3.0 if verb in DECISIONS else 20.0
    arms = arms_of("llama-3.1-8b-h100", ["bf16", "fp8"])
    if world := WORLDS.get(verb):
        in_use, other = map(_with_small_pool, arms)
        arms = (slower_arm(in_use, world.slower), other)
    with start(arms, ServerOptions(noise=False, speed=speed, truth=truth)) as servers:
        yield ",".join(f"{arm}={url}" for arm, url in servers.urls.items())


def _with_small_pool(arm: ArmProfile) -> ArmProfile:
    memory_bytes = POOL_TOKENS * bytes_per_token(arm.model, "bf16")
    server = replace(arm.server, max_model_len=4096, kv_cache_memory_bytes=memory_bytes)
    return replace(arm, server=server)


def _command(verb: Verb, endpoints: str, database: Path) -> list[str]:
    at = ["--endpoints", endpoints, "--db", str(database)]
    report = str(database.parent / "report")
    match verb:
        case "replay" | "workers":
            workers = ["--workers", "2" if verb == "workers" else "1"]
            return [
                *AGENTLOAD,
                "replay",
                str(_trace(database.parent)),
                *at,
                "--pairs",
                str(PAIRS),
                *workers,
            ]
        case "eval":
            return [
                *AGENTLOAD,
                "eval",
                *at,
                "--contexts",
                "1k",
                "--tasks",
                "json_recall",
                "--items",
                "600",
            ]
        case "sweep":
            return [
                *AGENTLOAD,
                "sweep",
                *at,
                "--contexts",
                "512,1k,2k",
                "--pairs",
                "30",
                "--output",
                "64",
            ]
        case "decide":
            trace = str(_trace(database.parent))
            return [*AGENTLOAD, "decide", trace, *at, "--budget", "3m", "-o", report]
        case "stages" | "answers":
            trace = str(_trace(database.parent, prefix=PREFIX_TOKENS))
            more = f"--budget 90m --slo ttft=2s,tpot=50ms --agents {WORLDS[verb].agents}"
            more += " --sessions 4 --duration 2s"
            quick = (sys.executable, "-c", QUICK_STAGES)
            return [*quick, "decide", trace, *at, *more.split(), "-o", report]
        case "watch":
            entry = {
                "traces": [str(_trace(database.parent))],
                "endpoints": endpoints.partition(",")[0],
                "schedule": {"cron": "0 2 * * *"},
                "pairs": PAIRS,
                "budget": {"calls": 500, "minutes": 5},
            }
            file = database.with_suffix(".yaml")
            file.write_text(yaml.safe_dump({"database": database.name, "jobs": {"nightly": entry}}))
            return [*AGENTLOAD, "watch", "run", "nightly", "--file", str(file)]
        case "load":
            return [*AGENTLOAD, "runs", "load", "--db", str(database)]


def _on(verb: Verb, database: Path) -> Sequence[str]:
    known = journalled_runs(database)
    if not known or verb in {"watch", "load"}:
        return ()
    return ("--into" if verb == "sweep" else "--resume", known[0])


def _was_killed(command: Sequence[str], rng: Random, is_due: Callable[[], bool]) -> bool:
    """Start a command and kill it at random; return whether it was still running.

    The random time starts when the kill *is_due*.
    """
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until_s = time.monotonic() + ENDING_S
    while not is_due() and running.poll() is None and time.monotonic() < until_s:
        time.sleep(0.05)
    try:
        running.wait(rng.uniform(0.3, 4.0))
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()
        return True
    return False


def _at_once() -> bool:
    return True


def _has_answered_since(folder: Path, before: int) -> bool:
    """Return whether servers answered more: what is killed from here on is under way."""
    return _answers(folder) > before


def _is_wanted_stage(database: Path, wanted: Counter[str], before: int) -> bool:
    """Return whether a decision now asks about a criterion in which kills are *wanted*."""
    return any(each.criterion in wanted for each in _looks(database)[before:][-1:])


def _answers(folder: Path) -> int:
    """Count the answers that left the servers whole."""
    return sum(len(list(answered(path))) for path in folder.glob("truth-*.jsonl"))


def _loads(number: int, folder: Path, rng: Random, count: Count) -> None:
    database = folder / "x.duckdb"
    with Writer(journal_folder(database, "r1") / "leg001.journal") as writer:
        writer.append(run_row())
        for each in range(CALLS):
            writer.append(call(each))
        writer.append(block_row())
    command = _command("load", "", database)
    while count.starts < number:
        for path in folder.glob("x.duckdb*"):
            path.unlink()
        for _ in range(min(A_RUN, number - count.starts)):
            count.starts += 1
            count.kills += _was_killed(command, rng, _at_once)
        done = completed(command)
        if done.returncode:
            count.stuck.append(done.stderr)
            continue
        with duckdb.connect(str(database), read_only=True) as connection:
            ((calls, names),) = connection.execute(
                "SELECT count(*), count(DISTINCT request_id) FROM calls_row"
            ).fetchall()
        count.answers += CALLS
        count.lost += ["a call"] * (CALLS - names)
        count.twice += ["a call"] * (calls - names)


def _trace(folder: Path, *, prefix: int = 100) -> Path:
    path = folder / "t.jsonl"
    if not path.exists():
        segments = {"P": (Segment(role="system", tokens=prefix, key="sys"),)}
        write(
            path,
            Trace(
                header=Header(name="t", seed=1, prefixes=segments),
                sessions=tuple(map(_session, range(6))),
            ),
        )
    return path


def _session(number: int) -> Session:
    name = f"s{number}"
    first = Turn(add=(Segment(role="user", tokens=60, key=f"{name}.0"),), output=8)
    said = (
        Segment(role="assistant", tokens=8, key=f"{name}.a"),
        Segment(role="user", tokens=30, key=f"{name}.1"),
    )
    turns = (first, Turn(add=said, output=5, wait="user", wait_s=0.7))
    return Session(session=name, workload="chat", start_s=0.02 * number, prefix="P", turns=turns)


def main() -> int:
    """Kill each verb in turn and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=100, help="kills, over all verbs")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--verbs", nargs="*", choices=get_args(Verb), default=get_args(Verb))
    parser.add_argument("--stages", nargs="*", choices=STAGES, default=STAGES)
    asked = parser.parse_args()
    # Whether this machine can measure is no matter of what is lost.
    os.environ["AGENTLOAD_CLIENT_CHECK"] = "0"
    clean = True
    for place, verb in enumerate(asked.verbs):
        number = asked.number // len(asked.verbs) + (place < asked.number % len(asked.verbs))
        with TemporaryDirectory(prefix="agentload-") as folder:
            own = WORLDS[verb].stages if verb in WORLDS else ()
            stages = [each for each in own if each in asked.stages]
            if own and not stages:
                continue
            count = killed(verb, number, folder=Path(folder), seed=asked.seed, stages=stages)
        clean = clean and count.is_clean
        print(
            f"{verb}: {count.kills} kills, {count.answers:,} answers, {len(count.lost)} "
            f"lost, {len(count.twice)} twice,"
            f" {len(count.stuck)} stuck (seed {asked.seed})",
            *(f"killed {number} times in: {name}" for name, number in count.stages.items()),
            *count.lost[:5],
            *count.stuck[:2],
            sep="\n  ",
            flush=True,
        )
    return not clean


if __name__ == "__main__":
    sys.exit(main())
