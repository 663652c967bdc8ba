from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterable, Iterator

import pytest

from agentload.live import station as module
from agentload.live.caller import RequestStyle
from agentload.live.station import RARELY, Job, station, swept_rarely
from agentload.live.target import Target
from agentload.live.wire import Wire
from agentload.prompts.tokenizer import WORD_TOKENS
from tests.live.calls import request
from tests.live.scripted import Peer, serving


def job(targets: Callable[[], Iterable[Target]], *, renews_keys: bool = False) -> Job:
    return Job(
        run_id="r",
        leg=1,
        seed=0,
        targets=targets,
        styles={"a": RequestStyle(model="m")},
        trace_seed=1,
        block=64,
        tokenizer=WORD_TOKENS,
        renews_keys=renews_keys,
    )


def fails() -> None:
    raise MemoryError


def transport_fails() -> None:
    context = {"message": "Fatal read error on socket transport", "exception": MemoryError()}
    asyncio.get_running_loop().call_exception_handler(context)


@pytest.mark.parametrize("fails", [fails, transport_fails])
async def test_a_callback_that_fails_ends_what_is_measured_and_is_not_printed(
    fails: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    async def measured() -> None:
        async with asyncio.timeout(60), station(job(tuple), lambda _: None):
            for _ in range(3):
                asyncio.get_running_loop().call_soon(fails)
            await asyncio.sleep(10)

    with pytest.raises(ExceptionGroup) as caught:
        await measured()
    assert caught.group_contains(MemoryError)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.loopback
async def test_keys_that_expire_are_asked_for_again_while_connections_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RENEW_S", 0.02)
    opened: list[Wire] = []
    renewed = asyncio.Event()

    class Noted(Wire):
        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, **named)  # type: ignore[arg-type]  # whatever a wire takes
            opened.append(self)

        def renew(self, targets: Iterable[Target]) -> None:
            super().renew(targets)
            renewed.set()

    monkeypatch.setattr(module, "Wire", Noted)
    keys = iter(("first", *["second"] * 100))

    async with serving(Peer.answer) as server:

        def targets() -> Iterator[Target]:
            yield Target(arm="a", url=server.url, api_key=next(keys))

        async with station(job(targets, renews_keys=True), lambda _: None):
            (wire,) = opened
            await wire.call(request(1))
            await asyncio.wait_for(renewed.wait(), 60)
            await wire.call(request(2))
        assert [each.headers["authorization"] for each in server.requests] == [
            "Bearer first",
            "Bearer second",
        ]
        assert server.connections == 1


@pytest.fixture
def thawed() -> Iterator[None]:
    """Start with nothing spared, which the suite does for itself."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("thawed")
def test_garbage_is_left_alone_meanwhile_and_swept_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with swept_rarely():
        assert (gc.get_threshold()[0], gc.get_freeze_count() > 0) == (RARELY, True)
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


@pytest.mark.usefixtures("thawed")
def test_what_a_program_spared_from_sweeping_stays_spared() -> None:
    gc.freeze()
    spared = gc.get_freeze_count()
    with swept_rarely():
        pass
    assert gc.get_freeze_count() >= spared
