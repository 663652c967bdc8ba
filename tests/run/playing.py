"""Play a small trace against a server that a test scripts, and read what was written down."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from agentload.endpoints.endpoint import Endpoint
from agentload.layout.plan import Scheme, plan, with_starts
from agentload.model.plan import ClosedLoop, Load, Plan
from agentload.model.rows import Row
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.play import Playing, ReplayPart
from agentload.run.relay import Launching
from agentload.store import journal
from agentload.store.places import journals
from agentload.study.change import extend
from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef
from tests.live.scripted import Answer, Peer, good

MODELS = json.dumps({"data": [{"id": "m"}]}).encode()
OUTPUT = 3
STUDY = Replay(traces=(TraceRef(path="t"),), servers=Live(endpoints="e"))


def trace(sessions: int = 2, *, output: int = OUTPUT) -> Trace:
    turns = (Turn(add=(Segment(role="user", tokens=30, key="u"),), output=output),)
    return Trace(
        header=Header(name="t", seed=1),
        sessions=tuple(
            Session(session=f"s{number}", workload="chat", start_s=0.0, turns=turns)
            for number in range(sessions)
        ),
    )


def answering(
    *headers: str,
    output: int = OUTPUT,
    pages: Callable[[str, int], str | None] = lambda _path, _chats: None,
) -> Answer:
    """Return a server that lists its model and answers chats with
    these headers; *pages* are its others, by path and chats so far.
    """
    chats = 0
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"

    async def answer(peer: Peer) -> None:
        nonlocal chats
        path = peer.request.line.split()[1]
        if path.endswith("/models"):
            await peer.send(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(MODELS), MODELS)
            )
        elif path.endswith("/chat/completions"):
            await peer.send(
                head + b"".join(f"{header}\r\n".encode() for header in headers) + b"\r\n"
            )
            await peer.events(*good(output))
            await peer.send(b"0\r\n\r\n")
            chats += 1
        elif (page := pages(path, chats)) is not None:
            await peer.send(
                b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(page), page.encode())
            )
        else:
            await peer.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    return answer


class Journalled(ReplayPart):
    """A leg whose rows stay in their journals: loading
    them takes longer than the rest of a small replay.
    """

    async def _load(self, *, patience_s: float) -> str | None:
        return None


def playing(
    made: Plan, endpoints: Sequence[Endpoint], database: Path, *, study: Replay = STUDY
) -> Playing:
    """Return what plays a plan on these endpoints."""
    return Playing(
        study=study, plan=made, endpoints=tuple(endpoints), database=database, trace_hash="h"
    )


async def played(
    folder: Path,
    endpoints: Sequence[Endpoint],
    *,
    sessions: int = 2,
    output: int = OUTPUT,
    pairs: int = 1,
    warmup: bool = False,
    is_resumed: bool = False,
    launching: Launching | None = None,
    sample_s: float = 0.01,
    is_forced: bool = False,
    notice: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Replay, one pair if not told otherwise, and return every row of the journals."""
    arms, load = [each.name for each in endpoints], Load(arrivals=ClosedLoop(sessions=2))
    made = plan(
        trace(sessions, output=output),
        arms,
        run="r1",
        scheme=Scheme(pairs=pairs, warmup=warmup),
        load=load,
    )
    made = made if launching is None else with_starts(made)
    database = folder / "x.duckdb"
    study = extend(STUDY, force=is_forced)
    how = replace(
        playing(made, endpoints, database, study=study),
        is_resumed=is_resumed,
        launching=launching,
        sample_s=sample_s,
    )
    await Journalled(how, notice=notice).play()
    return [row for path in journals(database, "r1") for row in journal.read(path)]
