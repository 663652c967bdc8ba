"""Draw numbers that depend on a seed, a purpose and a name alone, so that sessions can be changed in any order."""

import hashlib
from collections.abc import Iterator
from random import Random


def uniform(seed: int, purpose: str, name: str) -> Iterator[float]:
    """Yield numbers in [0, 1)."""
    rng = Random(int.from_bytes(hashlib.shake_256(f"{seed}\0{purpose}\0{name}".encode("utf-8", "surrogatepass")).digest(32)))
    while True:
        yield rng.random()
