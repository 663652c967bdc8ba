"""Between blocks servers are asked who they are: another process,
dtype or replica, or somebody else's requests, void the block.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from agentload.dispatch.dispatcher import PlayEnd
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify
from agentload.errors import EndpointError
from agentload.layout.plan import Scheme, plan
from agentload.model.commands import Limits, Settle
from agentload.model.plan import ClosedLoop, Load, Play
from agentload.model.rows import BlockRow, FingerprintRow, Row, SampleRow
from agentload.run import barrier
from agentload.store import journal
from agentload.store.places import journals
from agentload.study.change import extend
from agentload.study.kinds import OnDead
from tests.live.scripted import Answer, Peer, serving
from tests.run.playing import STUDY, Journalled, answering, played, playing, trace

pytestmark = pytest.mark.loopback


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barrier, "LOOKS", 4)
    monkeypatch.setattr(barrier, "LOOK_S", 0.01)


class Unheard:
    """A host that takes no notice."""

    def notice(self, text: str) -> None:
        pass

    refused = invalid = notice

    def lost(self, arm: str, why: str) -> None:
        pass

    async def pair_done(self) -> None:
        pass

    def is_stopping(self) -> bool:
        return False


def metrics(
    *, done: int = 0, dtype: str = "fp8", start_s: int | None = 7, running: int = 0, tokens: int = 0
) -> str:
    return (
        f'vllm:request_success_total{{finished_reason="length"}} '
        f"{done}\nvllm:num_requests_running {running}\n"
        "vllm:generation_tokens_total "
        f'{tokens}\nvllm:cache_config_info{{cache_dtype="{dtype}"}} 1.0\n'
        + ("" if start_s is None else f"process_start_time_seconds {start_s}\n")
    )


def page(told: Callable[[int], str | None]) -> Callable[[str, int], str | None]:
    return lambda path, chats: told(chats) if path == "/metrics" else None


def voids(rows: list[Row]) -> list[str | None]:
    return [row.void for row in rows if isinstance(row, BlockRow)]


@pytest.mark.parametrize(
    ("told", "void"),
    [
        (lambda chats: metrics(done=chats), None),
        (
            lambda chats: metrics(done=chats + 3 * (chats > 0)),
            "a answered 3 requests that were not ours",
        ),
        (
            lambda _: metrics(),
            (
                "a counted 0 of our 2 requests: its metrics are another server's, or somebody "
                "answered in its place"
            ),
        ),
        (
            lambda chats: metrics(done=chats, start_s=7 + (chats > 0)),
            "a changed during the block: process_start_s 7.0 → 8.0",
        ),
        (
            lambda chats: metrics(done=chats, dtype="auto" if chats else "fp8"),
            "a changed during the block: kv_cache_dtype fp8 → auto",
        ),
        # Several API servers share a page that does not say when they were started.
        (
            lambda chats: metrics(done=chats or 40, start_s=None),
            "a changed during the block: its counters started again",
        ),
    ],
)
async def test_a_block_is_void_when_its_server_changed_or_answered_others(
    tmp_path: Path, told: Callable[[int], str | None], void: str | None
) -> None:
    async with serving(answering(pages=page(told))) as server:
        rows = await played(tmp_path, [Endpoint(name="a", url=server.url)])
    assert voids(rows)[0] == void


@pytest.mark.parametrize(
    ("is_stale", "void"), [(False, "a still works on 1 requests that are not ours"), (True, None)]
)
async def test_a_request_of_others_that_is_still_running_voids_and_a_gauge_that_stayed_where_it_was_does_not(
    tmp_path: Path, *, is_stale: bool, void: str | None
) -> None:
    looks = iter(range(10_000))

    def told(chats: int) -> str:
        return metrics(done=chats, running=int(chats > 0), tokens=0 if is_stale else next(looks))

    async with serving(answering(pages=page(told))) as server:
        rows = await played(tmp_path, [Endpoint(name="a", url=server.url)])
    assert voids(rows)[0] == void


async def test_a_server_that_became_another_arm_voids_every_block_until_it_is_what_it_was(
    tmp_path: Path,
) -> None:
    def told(chats: int) -> str:
        return metrics(done=chats, dtype="auto" if 2 <= chats < 6 else "fp8")

    async with serving(answering(pages=page(told))) as server:
        rows = await played(tmp_path, [Endpoint(name="a", url=server.url)])
    # The block is played three times: it changes during the first,
    # was another one throughout the second, and is itself again.
    assert voids(rows) == ["a changed during the block: kv_cache_dtype fp8 → auto"] * 2 + [None]


async def test_a_page_that_is_refused_once_voids_nothing_and_is_told_of(tmp_path: Path) -> None:
    heard: list[str] = []
    async with serving(
        answering(pages=page(lambda chats: None if chats == 1 else metrics(done=chats)))
    ) as server:
        rows = await played(
            tmp_path,
            [Endpoint(name="a", url=server.url)],
            pairs=2,
            sample_s=3600.0,
            notice=heard.append,
        )
    assert voids(rows) == [None, None]
    facts = [json.loads(row.facts) for row in rows if isinstance(row, FingerprintRow)]
    assert [each["kv_cache_dtype"] for each in facts] == ["fp8"] * 3
    assert [each for each in heard if "held to be what it was" in each] == [
        (
            "a is held to be what it was: after the block it did not answer "
            f"{server.url.removesuffix('/v1')}/metrics: 404"
        )
    ]


async def test_others_requests_are_found_by_the_next_page_where_one_was_refused(
    tmp_path: Path,
) -> None:
    def told(chats: int) -> str | None:
        return None if chats == 1 else metrics(done=chats + 5 * (chats > 1))

    async with serving(answering(pages=page(told))) as server:
        rows = await played(tmp_path, [Endpoint(name="a", url=server.url)], pairs=2)
    assert voids(rows)[:2] == [None, "a answered 5 requests that were not ours"]


async def test_what_a_server_counts_is_sampled_at_both_ends_of_every_block(tmp_path: Path) -> None:
    async with serving(
        answering(pages=page(lambda chats: metrics(done=chats, tokens=3 * chats)))
    ) as server:
        rows = await played(
            tmp_path, [Endpoint(name="a", url=server.url)], pairs=2, sample_s=3600.0
        )
    samples = [row for row in rows if isinstance(row, SampleRow) and row.name == "output_tokens"]
    assert [row.value for row in samples] == [0.0, 3.0, 6.0]
    # How full or busy a server is once it has settled says nothing of the block.
    assert {row.name for row in rows if isinstance(row, SampleRow)} == {
        "requests_done",
        "output_tokens",
    }
    first, second = (row for row in rows if isinstance(row, BlockRow))
    assert first.ended_ns is not None
    assert second.ended_ns is not None
    assert (
        samples[0].at_ns
        < first.started_ns
        < first.ended_ns
        < samples[1].at_ns
        < second.started_ns
        < second.ended_ns
        < samples[2].at_ns
    )


async def test_a_replica_that_goes_voids_the_block(tmp_path: Path) -> None:
    def pages(path: str, chats: int) -> str | None:
        match path:
            case "/one":
                return metrics(done=chats)
            case "/two" if chats == 0:
                return metrics()
            case _:
                return None

    async with serving(answering(pages=pages)) as server:
        root = server.url.removesuffix("/v1")
        rows = await played(
            tmp_path, [Endpoint(name="a", url=server.url, metrics=(f"{root}/one", f"{root}/two"))]
        )
    assert voids(rows)[0] == "a changed during the block: replicas 2 → 1, engines 2 → 1"


async def test_replicas_of_different_dtypes_behind_one_url_stop_the_run(tmp_path: Path) -> None:
    pages = {"/one": metrics(dtype="fp8"), "/two": metrics(dtype="auto")}
    async with serving(answering(pages=lambda path, _: pages.get(path))) as server:
        root = server.url.removesuffix("/v1")
        with pytest.raises(
            EndpointError, match="a: replicas behind one URL differ in cache_dtype: auto, fp8"
        ):
            await played(
                tmp_path,
                [Endpoint(name="a", url=server.url, metrics=(f"{root}/one", f"{root}/two"))],
            )


async def test_a_run_is_not_gone_on_with_on_another_server_unless_forced(tmp_path: Path) -> None:
    dtype = "fp8"
    async with serving(
        answering(pages=page(lambda chats: metrics(done=chats, dtype=dtype)))
    ) as server:
        arm = [Endpoint(name="a", url=server.url)]
        await played(tmp_path, arm)
        dtype = "auto"
        with pytest.raises(
            EndpointError,
            match="a is not the server that the run began with: kv_cache_dtype fp8 → auto",
        ):
            await played(tmp_path, arm, pairs=2, is_resumed=True)
        assert voids(await played(tmp_path, arm, pairs=2, is_resumed=True, is_forced=True)) == [
            None,
            None,
        ]


pytestmark = pytest.mark.loopback


def dying(*, hangs: bool = False) -> Answer:
    """Return a server that breaks every connection from its
    first chat on; one that *hangs* takes that, and says nothing.
    """
    alive, is_dead = answering(), False

    async def answer(peer: Peer) -> None:
        nonlocal is_dead
        is_chat = peer.request.line.split()[1].endswith("/chat/completions")
        is_dead = is_dead or is_chat
        if hangs and is_chat:
            await peer.hang()
        elif is_dead:
            peer.reset()
        else:
            await alive(peer)

    return answer


async def test_a_stop_ends_the_wait_for_a_dead_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(barrier, "WAIT_S", 0.02)
    made = plan(
        trace(6),
        ["a"],
        run="r1",
        scheme=Scheme(pairs=1),
        load=Load(arrivals=ClosedLoop(sessions=6)),
    )
    is_lost = asyncio.Event()
    async with serving(dying()) as server:
        how = playing(made, [Endpoint(name="a", url=server.url)], tmp_path / "x.duckdb")
        leg = Journalled(
            how, notice=lambda said: is_lost.set() if "waiting for it" in said else None
        )
        task = asyncio.create_task(leg.play())
        await is_lost.wait()
        await asyncio.sleep(0.05)
        leg.stop()
        ended = await asyncio.wait_for(task, 60)
    assert ended.was_stopped
    rows = [row for path in journals(how.database, "r1") for row in journal.read(path)]
    assert [row.void for row in rows if isinstance(row, BlockRow)] == ["a died during the block"]


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize(("on_dead", "was_stopped"), [("stop", True), ("skip", False)])
async def test_what_was_played_names_the_arms_that_stopped_answering_and_how_calls_ended(
    tmp_path: Path, *, on_dead: OnDead, was_stopped: bool, hangs: bool
) -> None:
    soon = Limits(first_ns=200_000_000)
    made = plan(
        trace(6),
        ["a", "b"],
        run="r1",
        scheme=Scheme(pairs=1),
        load=Load(arrivals=ClosedLoop(sessions=6)),
        limits=soon,
    )
    async with serving(answering()) as one, serving(dying(hangs=hangs)) as other:
        endpoints = (Endpoint(name="a", url=one.url), Endpoint(name="b", url=other.url))
        how = playing(made, endpoints, tmp_path / "x.duckdb", study=extend(STUDY, on_dead=on_dead))
        said = list[str]()
        ended = await asyncio.wait_for(Journalled(how, notice=said.append).play(), 60)
    assert (ended.died, ended.was_stopped) == (("b",), was_stopped)
    (lost,) = (each for each in said if "stopped answering" in each)
    cause = "first_timeout: " if hangs else "reset: ConnectionResetError: "
    assert lost.startswith(f"b stopped answering ({cause}")


@pytest.mark.parametrize(
    ("fault", "again", "repeated", "void"),
    [
        (None, False, (), None),
        ("node 2 stood still", False, (), "node 2 stood still"),
        ("a shard is gone", True, ((0, "a shard is gone"),), "a shard is gone"),
    ],
)
@pytest.mark.parametrize("strangers", [0, 3])
async def test_what_nodes_found_wrong_makes_a_block_invalid_and_has_it_played_again_where_that_helps(
    fault: str | None,
    *,
    again: bool,
    repeated: tuple[tuple[int, str], ...],
    void: str | None,
    strangers: int,
) -> None:
    """A server has answered requests that we know nothing
    of: where a shard is gone, they may be those in it.
    """
    if strangers and not again:
        void = f"a answered {strangers} requests that were not ours"
        repeated = ((0, void),)
    done = [0]
    rows: list[Row] = []

    async with serving(answering(pages=page(lambda _: metrics(done=done[0])))) as server:
        endpoint = Endpoint(name="a", url=server.url)
        rounds = barrier.Rounds(
            run_id="r",
            leg=1,
            pair_size=1,
            on_dead="wait",
            goes_on="",
            write=rows.append,
            samples=tuple,
        )
        made = barrier.Barrier(
            rounds=rounds,
            host=Unheard(),
            endpoints={"a": endpoint},
            before={"a": await identify(endpoint)},
        )
        done[0] = strangers
        play = Play(block=0, arm="a", pair=0, salt="s")
        end = PlayEnd(play=play, round=0, started_ns=0, drain_ns=None, ended_ns=1, is_whole=True)
        assert (
            await made(Settle(round=0, next_round=None), (end,), fault=fault, again=again)
            == repeated
        )
    assert voids(rows) == [void]
