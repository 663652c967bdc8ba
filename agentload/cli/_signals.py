"""Hear Ctrl-C, SIGTERM and a closed terminal while an event loop runs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def heard(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* for each of them, and put back what they did before: the loop would have them kill us. `nohup` stays as it is."""
    loop = asyncio.get_running_loop()
    terminals = [stream.fileno() for stream in (sys.stdout, sys.stderr) if stream.isatty()]

    def hung_up() -> None:
        with open(os.devnull, "wb") as nobody:  # noqa: PTH123  # a device; writing to the terminal that has gone would raise
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
