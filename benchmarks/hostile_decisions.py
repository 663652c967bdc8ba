"""Decide between a healthy arm and one that answers wrongly in one way, and check how that ends.

The challenger is an emulated server that says honestly who it is and counts prompts honestly.
Either it has its questions right, and what it streams is one of the modes of
`tests/live/hostile.py`; or it streams well and at once, and answers questions in one of these
modes, or with one of the damaged answers of `tests/ask/test_hostile.py`. So each decision gets as
far as its verdict, and what it finds must come from what is wrong. The first decision is a
control: its challenger does both well, and has to be used. The memory of the others is compared
with that of the control.
"""

import asyncio
import json
import math
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, TypeAlias

import duckdb

from advisor.gates import client
from agentload.cli.main import main
from agentload.live import health
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.servers import arms_of
from agentload.serve.server import ServerOptions
from agentload.tracefile.files import write
from tests.ask.test_hostile import BODIES, GOOD, saying
from tests.live.hostile import MODES
from tests.live.hostility import behind
from tests.live.scripted import Answer, Peer, serving
from tests.serve.serving import served

BUDGET_S = 180
"""The least that a decision between two arms takes."""
MOST_SHARE = 1.15
"""Share of the budget in which servers are asked."""
GRACE_S = 60
"""What may follow on a busy machine: the last load and the report, which ask no server."""
MOST_MB = 128
"""Memory that a decision may take beyond that of the control."""
HUNG_S = 240
"""Seconds after which a decision is ended that should have ended by itself."""
TOKENS = 3
"""Tokens of each answer, as many as most modes send."""
CONTROL = "good_answers_at_once"
Kind: TypeAlias = Literal["streams", "questions"]
QUESTIONS: dict[str, Answer] = {
    **{name: mode.answer for name, mode in MODES.items()},
    **{f"body_{name}": saying(body) for name, body in (BODIES | GOOD).items()},
}
"""Ways to answer a question; those with a good body answer a question that was not asked."""
IMPORTED = ("agentload.cli.studies", "agentload.cli._decide", "openai.types", "scipy.optimize")
"""What each decision imports: it is imported once, and each process forks from there."""


def run(typed: Sequence[str], screen: Path) -> None:
    """Run a command line in this process, whose outputs go to a file."""
    os.setsid()  # what it starts ends with it
    with screen.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    # This machine is busy with its own servers: how late requests leave is not what is tried.
    os.environ["AGENTLOAD_CLIENT_CHECK"] = "0"
    for limit in ("MAX_SEND_LAG_MS", "MAX_STALL_MS", "MAX_COALESCED_SHARE"):
        setattr(health, limit, math.inf)
    client._failures = lambda *_: iter(())  # noqa: SLF001  # no policy of a decision can be given
    sys.argv[1:] = typed
    before_mb = resident_mb("VmRSS")
    try:
        sys.exit(main())
    finally:
        (screen.parent / "grown").write_text(str(resident_mb("VmHWM") - before_mb))


def resident_mb(name: str) -> float:
    """Return a size of this process: VmRSS now, VmHWM at its peak."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) / 1024


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How one decision ended."""

    code: int
    seconds: float
    screen: str
    """What it wrote to both outputs."""
    page: str | None
    """Its report; None where there is none."""
    title: str
    """What was decided, or the error that it ended with."""
    verdict: str | None
    """What the report says of the hostile arm."""
    do_now: int
    """Next steps that the report names."""
    grown_mb: float
    """Memory at the peak beyond what was when it began."""
    ends: dict[str, int]
    """How many streams of the hostile arm ended with each status, or answers with each error."""
    miscounted: int
    """Calls of that arm that are ok and have not as many tokens as were asked."""

    def faults(self, mode: str, *, asked_s: float, usual_mb: float) -> Iterator[str]:
        """Yield what must not be.

        The hostile arm answered for *asked_s*; a decision of good answers takes *usual_mb*.
        """
        if asked_s > MOST_SHARE * BUDGET_S:
            yield f"asked for {asked_s:.0f} s of {BUDGET_S}"
        if self.seconds > MOST_SHARE * BUDGET_S + GRACE_S:
            yield f"took {self.seconds:.0f} s of {BUDGET_S}"
        if self.grown_mb > usual_mb + MOST_MB:
            yield f"took {self.grown_mb:.0f} MB, where good answers take {usual_mb:.0f}"
        yield from self._faults_of_exit()
        if self.miscounted:
            yield f"{self.miscounted} calls ok with other counts than asked"
        if self.page is not None and not self.do_now:
            yield "a report without a next step"
        damaged = self.ends.keys() - {"ok"}
        if (self.verdict == "use") != (mode == CONTROL) and (damaged or mode == CONTROL):
            yield f"the verdict is {self.verdict}"
        for where, text in (("screen", self.screen), ("page", self.page)):
            if damaged and text and not any(cause(each) in text for each in damaged):
                yield f"no cause on the {where}"

    def _faults_of_exit(self) -> Iterator[str]:
        if "Traceback" in self.screen:
            yield "a traceback"
        if self.code < 0:
            yield f"ended by signal {-self.code}, which is ours where it took too long"
        elif self.code not in (0, 1) or (self.code == 1) != self.title.startswith("error: "):
            yield f"exit {self.code}"
        if self.code == 1 and "\nhint: " not in self.screen:
            yield "an error without a hint"


def cause(end: str) -> str:
    """Return what has to be said of an end: its beginning; of a wrong answer, what was wrong."""
    return "right" if end == "wrong" else end[:30]


async def good_answers_at_once(peer: Peer) -> None:
    """Answer as a server that takes no time."""
    await peer.answer(TOKENS)


def trace(path: Path) -> None:
    """Write six sessions of four turns, each with a short answer."""
    sessions = tuple(
        Session(
            session=f"s{number}",
            workload="chat",
            start_s=0.1 * number,
            turns=tuple(
                Turn(add=(Segment(role="user", tokens=200, key=f"{number}.{turn}"),), output=TOKENS)
                for turn in range(4)
            ),
        )
        for number in range(6)
    )
    write(path, Trace(header=Header(name="t", seed=1), sessions=sessions))


@asynccontextmanager
async def arms() -> AsyncIterator[tuple[str, str]]:
    """Serve both arms; yield their addresses."""
    of_profile, options = arms_of("llama-3.1-8b-h100", ["bf16", "fp8"]), ServerOptions(speed=3.0)
    async with served(of_profile[0], options) as good, served(of_profile[1], options) as honest:
        yield good.url, honest.url


async def decided(folder: Path, good: str, hostile: str, kind: Kind) -> Ended:
    """Decide between two servers in a process of its own."""
    database, page = folder / "x.duckdb", folder / "report"
    options = f"--sessions 2 --duration 1s --budget {BUDGET_S}s --force".split()
    typed = ["--endpoints", f"good={good},bad={hostile}", "--db", str(database), "-o", str(page)]
    began_s = time.monotonic()
    typed = ["decide", str(folder / "t.jsonl"), *typed, *options]
    child = FORKED.Process(target=run, args=(typed, folder / "screen"))
    child.start()
    await asyncio.to_thread(child.join, MOST_SHARE * BUDGET_S + GRACE_S + HUNG_S)
    assert child.pid is not None
    with suppress(ProcessLookupError):  # nothing is left of it
        os.killpg(child.pid, signal.SIGKILL)
    child.join()
    ends, miscounted = _ends(database, kind) if database.exists() else ({}, 0)
    shown, written = (folder / "screen").read_text(errors="replace"), page / "decision.json"
    grown = folder / "grown"
    found = json.loads(written.read_text()) if written.exists() else None
    error = re.search(r"^error: .*", shown, re.MULTILINE)
    return Ended(
        code=child.exitcode or 0,
        seconds=time.monotonic() - began_s,
        screen=shown,
        page=(page / "decision.md").read_text() if found else None,
        title=found["headline"] if found else error[0] if error else "neither report nor error",
        verdict=found["decision"]["server"][0]["verdict"] if found else None,
        do_now=len(found["do_now"]) if found else 0,
        grown_mb=float(grown.read_text()) if grown.exists() else math.nan,
        ends=ends,
        miscounted=miscounted,
    )


def _ends(database: Path, kind: Kind) -> tuple[dict[str, int], int]:
    of_arm = f"FROM calls WHERE arm = 'bad' AND asked_tokens = {TOKENS}"
    with duckdb.connect(str(database), read_only=True) as connection:
        query = ANSWERS if kind == "questions" else f"SELECT status, count(*) {of_arm} GROUP BY 1"
        rows = connection.execute(query).fetchall()
        wrong = f"SELECT count(*) {of_arm} AND status = 'ok' AND output_tokens <> asked_tokens"
        found = connection.execute(wrong).fetchone()
    assert found is not None
    return {status: count for status, count in rows if status not in NOT_ANSWERED}, found[0]


ANSWERS: Final = """
    SELECT coalesce(signals ->> 'error', CASE WHEN "right" THEN 'ok' ELSE 'wrong' END), count(*)
    FROM answers WHERE arm = 'bad' GROUP BY 1
"""
FORKED = get_context("forkserver")
FORKED.set_forkserver_preload([__name__, *IMPORTED])
NOT_ANSWERED = frozenset({"cancelled", "not_sent", "stopped"})
"""Ends that are not the server's."""


async def _decisions(kind: Kind, modes: Sequence[str], together: int) -> list[str]:
    failed, without_row, left = list[str](), [CONTROL, *modes], iter((CONTROL, *modes))
    usual_mb: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def decide(mode: str, good: str, honest: str) -> None:
        at_s = list[float]()
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            trace(Path(folder) / "t.jsonl")
            async with serving(timed(challenger(honest, kind, mode), at_s)) as hostile:
                ended = await decided(Path(folder), good, hostile.url, kind)
                hostile.failures.clear()
        asked_s = max(at_s, default=0.0) - min(at_s, default=0.0)
        if mode == CONTROL:
            usual_mb.set_result(ended.grown_mb)
        faults = list(ended.faults(mode, asked_s=asked_s, usual_mb=await usual_mb))
        print(
            f"| {mode} | {ended.code} | {asked_s:.0f} | {ended.seconds:.0f} | {ended.grown_mb:.0f} "
            f"| {json.dumps(ended.ends)} | {ended.title} | {'; '.join(faults) or 'none'} |",
            flush=True,
        )
        if faults:
            failed.append(mode)
            print(mode, ended.screen, sep="\n", file=sys.stderr, flush=True)

    async def work() -> None:
        async with arms() as (good, honest):
            for mode in left:
                try:
                    await decide(mode, good, honest)
                except Exception as error:  # noqa: BLE001  # the other modes have rows all the same
                    failed.append(mode)
                    print(f"| {mode} | | | | | | none | our own {error!r} |", flush=True)
                    traceback.print_exc()
                    if mode == CONTROL and not usual_mb.done():
                        usual_mb.set_result(math.nan)
                without_row.remove(mode)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(together):
                tasks.create_task(work())
    finally:
        print(f"no row yet, as this was ended: {', '.join(without_row) or 'none'}", flush=True)
    return failed


def challenger(honest: str, kind: Kind, mode: str) -> Answer:
    """Return what answers as the server at *honest*, but streams or questions in a way."""
    if mode == CONTROL:
        return behind(honest, good_answers_at_once, only="streams")
    if kind == "streams":
        return behind(honest, MODES[mode].answer, only="streams")

    async def answer(peer: Peer) -> None:
        is_stream = bool(json.loads(peer.request.body).get("stream"))
        await (good_answers_at_once if is_stream else QUESTIONS[mode])(peer)

    return behind(honest, answer)


def timed(answer: Answer, at_s: list[float]) -> Answer:
    """Return what answers, and notes when each answer began and ended."""

    async def noting(peer: Peer) -> None:
        at_s.append(time.monotonic())
        try:
            await answer(peer)
        finally:
            at_s.append(time.monotonic())

    return noting


def decisions(kind: Kind, modes: Sequence[str], *, together: int) -> int:
    """Decide once for each mode, print how that ended, and tell whether any has faults.

    Of all modes that many are tried *together*: a decision mostly waits.
    """
    print(
        f"| mode | exit | s asked | s | MB | {kind} | headline | faults |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    failed = asyncio.run(_decisions(kind, modes, together))
    print(f"ended as none should: {', '.join(failed) or 'none'}")
    return int(bool(failed))
