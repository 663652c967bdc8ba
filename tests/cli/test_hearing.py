"""What is played hears Ctrl-C, SIGTERM and a closed terminal;
whoever plays it keeps the handlers that were there.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from agentload.cli._signals import hear_stop

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    """Have the handlers that the command line sets."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in ENDS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def stops(number: signal.Signals) -> int:
    stopped = 0

    def stop() -> None:
        nonlocal stopped
        stopped += 1

    with hear_stop(stop):
        os.kill(os.getpid(), number)
        await asyncio.sleep(0.01)
    return stopped


@pytest.mark.parametrize("number", ENDS)
def test_each_signal_stops_what_is_played_and_then_does_what_it_did_before(
    number: signal.Signals,
) -> None:
    assert asyncio.run(stops(number)) == 1
    assert {signal.getsignal(each) for each in ENDS} == {signal.default_int_handler}


def test_nohup_stays_as_it_is() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert asyncio.run(stops(signal.SIGHUP)) == 0
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
