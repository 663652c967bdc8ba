"""Hear Ctrl-C, SIGTERM and a closed terminal, and put back what they did before."""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], object] | signal.Handlers


@contextmanager
def handle_signals(handlers: Mapping[int, Handler]) -> Iterator[None]:
    """Handle signals in this way while the block runs."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def hear_stop(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* for each of them while an event loop runs, which
    would have them kill us afterwards. `nohup` stays as it is.
    """
    from asyncio import get_running_loop  # late: `agentload --help` does not need it

    loop = get_running_loop()
    terminals = [stream.fileno() for stream in (sys.stdout, sys.stderr) if stream.isatty()]

    def hung_up() -> None:
        # a device; writing to the terminal that has gone would raise
        with open(os.devnull, "wb") as nobody:  # noqa: PTH123
            for terminal in terminals:
                os.dup2(nobody.fileno(), terminal)
        stop()

    calls = {signal.SIGINT: stop, signal.SIGTERM: stop, signal.SIGHUP: hung_up}
    before = {number: signal.getsignal(number) for number in calls}
    if before[signal.SIGHUP] == signal.SIG_IGN:
        del calls[signal.SIGHUP]
    for number, call in calls.items():
        loop.add_signal_handler(number, call)
    try:
        yield
    finally:
        for number in calls:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
