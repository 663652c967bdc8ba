"""Decide between a healthy arm and one whose streams mean ill, and check how that ends.

The challenger is an emulated server that says honestly who it is, counts prompts honestly and has
its questions right; only what it streams is one of the modes of `tests/live/hostile.py`. So each
decision gets as far as its verdict, and what it finds must come from the streams. The first
decision is a control: its challenger streams well and at once, and has to be used.
"""

import asyncio
import json
import math
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from advisor.gates import client
from agentload.cli.main import main
from agentload.live import health
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.servers import arms_of
from agentload.serve.server import ServerOptions
from agentload.tracefile.files import write
from tests.live.hostile import MODES
from tests.live.hostility import behind
from tests.live.scripted import Answer, Peer, serving
from tests.serve.serving import served

BUDGET_S = 180
"""The least that a decision between two arms takes."""
GRACE_S = 60
"""What may follow the budget: the process starts, and its last call, load and report end."""
TOKENS = 3
"""Tokens of each answer, as many as most modes send."""
CONTROL = "good_answers_at_once"
IMPORTED = ("agentload.cli.studies", "agentload.cli._decide", "openai.types", "scipy.optimize")
"""What each decision imports: it is imported once, and each process forks from there."""


def run(typed: Sequence[str], screen: Path) -> None:
    """Run a command line in this process, whose outputs go to a file."""
    with screen.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    # This machine is busy with its own servers: how late requests leave is not what is tried.
    os.environ["AGENTLOAD_CLIENT_CHECK"] = "0"
    for limit in ("MAX_SEND_LAG_MS", "MAX_STALL_MS", "MAX_COALESCED_SHARE"):
        setattr(health, limit, math.inf)
    client._faults = lambda *_: []  # noqa: SLF001  # no policy of a decision can be given
    sys.argv[1:] = typed
    sys.exit(main())


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
    streams: dict[str, int]
    """How many calls of the hostile arm ended with each status."""
    miscounted: int
    """Calls of that arm that are ok and have not as many tokens as were asked."""

    def faults(self, mode: str) -> Iterator[str]:
        """Yield what must not be."""
        if self.seconds > BUDGET_S + GRACE_S:
            yield f"took {self.seconds:.0f} s of {BUDGET_S}"
        if "Traceback" in self.screen:
            yield "a traceback"
        if self.code not in (0, 1) or (self.code == 1) != self.title.startswith("error: "):
            yield f"exit {self.code}"
        if self.code == 1 and "\nhint: " not in self.screen:
            yield "an error without a hint"
        if self.miscounted:
            yield f"{self.miscounted} calls ok with other counts than asked"
        damaged = {status: count for status, count in self.streams.items() if status != "ok"}
        if (self.verdict == "use") != (mode == CONTROL) and (damaged or mode == CONTROL):
            yield f"the verdict is {self.verdict}"
        for where, text in (("screen", self.screen), ("page", self.page)):
            if damaged and text and not any(status in text for status in damaged):
                yield f"no cause on the {where}"


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


async def decided(folder: Path, good: str, hostile: str) -> Ended:
    """Decide between two servers in a process of its own."""
    database, page = folder / "x.duckdb", folder / "report"
    options = f"--sessions 2 --duration 1s --budget {BUDGET_S}s --force".split()
    typed = ["--endpoints", f"good={good},bad={hostile}", "--db", str(database), "-o", str(page)]
    began_s = time.monotonic()
    typed = ["decide", str(folder / "t.jsonl"), *typed, *options]
    child = FORKED.Process(target=run, args=(typed, folder / "screen"))
    child.start()
    await asyncio.to_thread(child.join, BUDGET_S + 2 * GRACE_S)
    child.kill()
    child.join()
    streams, miscounted = _calls(database)
    shown, written = (folder / "screen").read_text(errors="replace"), page / "decision.json"
    found = json.loads(written.read_text()) if written.exists() else None
    error = re.search(r"^error: .*", shown, re.MULTILINE)
    return Ended(
        code=child.exitcode or 0,
        seconds=time.monotonic() - began_s,
        screen=shown,
        page=(page / "decision.md").read_text() if found else None,
        title=found["headline"] if found else error[0] if error else "neither report nor error",
        verdict=found["decision"]["server"][0]["verdict"] if found else None,
        streams=streams,
        miscounted=miscounted,
    )


def _calls(database: Path) -> tuple[dict[str, int], int]:
    if not database.exists():
        return {}, 0
    of_arm = f"FROM calls WHERE arm = 'bad' AND asked_tokens = {TOKENS}"
    with duckdb.connect(str(database), read_only=True) as connection:
        rows = connection.execute(f"SELECT status, count(*) {of_arm} GROUP BY status").fetchall()
        wrong = f"SELECT count(*) {of_arm} AND status = 'ok' AND output_tokens <> asked_tokens"
        found = connection.execute(wrong).fetchone()
    assert found is not None
    return {status: count for status, count in rows if status not in NOT_ANSWERED}, found[0]


FORKED = get_context("forkserver")
FORKED.set_forkserver_preload([__name__, *IMPORTED])
NOT_ANSWERED = frozenset({"cancelled", "not_sent", "stopped"})
"""Ends that are not the server's."""


async def _decisions(modes: Sequence[str]) -> list[str]:
    failed = []
    async with arms() as (good, honest):
        for mode in (CONTROL, *modes):
            answer: Answer = good_answers_at_once if mode == CONTROL else MODES[mode].answer
            with TemporaryDirectory() as folder:
                trace(Path(folder) / "t.jsonl")
                async with serving(behind(honest, answer, only="streams")) as hostile:
                    ended = await decided(Path(folder), good, hostile.url)
                    hostile.failures.clear()
            faults = list(ended.faults(mode))
            print(
                f"| {mode} | {ended.code} | {ended.seconds:.0f} | {json.dumps(ended.streams)} "
                f"| {ended.title} | {'; '.join(faults) or 'none'} |",
                flush=True,
            )
            if faults:
                failed.append(mode)
                print(ended.screen, file=sys.stderr, flush=True)
    return failed


def decisions(modes: Sequence[str]) -> int:
    """Decide once for each mode, print how that ended, and tell whether any has faults."""
    print(
        "| mode | exit | s | streams | headline | faults |\n| --- | --- | --- | --- | --- | --- |"
    )
    failed = asyncio.run(_decisions(modes))
    print(f"ended as none should: {', '.join(failed) or 'none'}")
    return int(bool(failed))
