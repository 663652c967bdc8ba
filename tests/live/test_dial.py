"""Which of a name's addresses is spoken to, and what a machine that has no sockets left says."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agentload.errors import LaunchError
from agentload.live import connections as connections_module
from agentload.live import dial as dial_module
from agentload.live.address import Address
from agentload.live.dial import Place
from agentload.live.target import Target
from agentload.live.wire import Wire
from tests.live.calls import request
from tests.live.scripted import Peer, serving

pytestmark = pytest.mark.loopback


@contextmanager
def deaf() -> Iterator[Place]:
    """An address that never answers, as one behind a firewall."""
    with socket.socket() as listening, socket.socket() as first, socket.socket() as second:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for waiting in (first, second):  # fill the queue of connections that nobody accepts
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield socket.AF_INET, listening.getsockname()


async def test_the_next_address_is_tried_where_one_does_not_answer_and_no_later_connection_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dial_module, "NEXT_S", 0.05)
    async with serving(Peer.answer) as server:
        good: Place = (socket.AF_INET, ("127.0.0.1", server.port))
        unspoken: Place = (socket.AF_APPLETALK, ("127.0.0.1", server.port))
        refusing: Place = (socket.AF_INET, ("127.0.0.1", 1))
        with deaf() as silent:

            async def places(_: Address) -> list[Place]:
                return [unspoken, refusing, silent, good]

            monkeypatch.setattr(connections_module, "places", places)
            async with Wire([Target(arm="a", url=server.url, connections="call")]) as wire:
                outcomes = [await wire.call(request(number)) for number in range(2)]
                assert wire._arms["a"]._places == [good]
    assert [outcome.status for outcome in outcomes] == ["ok", "ok"]
    took_ms = [(each.opened_ns - each.dialled_ns) / 1e6 for each in outcomes if each.opened_ns and each.dialled_ns]
    assert took_ms[0] >= 50 > took_ms[1]


async def test_a_machine_that_has_no_sockets_left_is_the_users_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async with Wire([Target(arm="a", url="http://127.0.0.1:9/v1")]) as wire:
        with monkeypatch.context() as patched:
            patched.setattr(socket, "socket", refuse)
            with pytest.raises(LaunchError) as caught:
                await wire.call(request())
    assert caught.value.hint == "raise the limit: ulimit -n 65536"
