"""Keep the interpreter's sweeps for garbage out of what is timed: one stops the loop, for tens of ms where many calls are in flight.

What calls leave behind dies by itself, without a sweep: they are written so as to hold no circles.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

RARELY: Final = 1_000_000  # containers that nobody lets go of: what is left is circles after all, or a load that needs them


@contextmanager
def swept_rarely() -> Iterator[None]:
    """Sweep now, look at nothing again that is there already, and sweep by itself only where garbage piles up."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(RARELY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
