"""Make the records that every call passes through: structs, which
are built in C, frozen, and of no concern to the collector of cycles.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from msgspec import Struct

Record = TypeVar("Record", bound=Struct)


def record(cls: type[Record]) -> type[Record]:
    """Let a struct answer `dataclasses.fields` and `dataclasses.replace` as every other value does.

    A dataclass of forty fields takes several µs to build:
    records were a sixth of what a simulated day costs.
    """
    return dataclass(init=False, repr=False, eq=False, match_args=False)(cls)


@contextmanager
def without_cycle_search() -> Iterator[None]:
    """Pause the collector of cycles, for work on very many records that form none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
