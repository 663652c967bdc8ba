"""Look records up: by the key that they share, or by their fields."""

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def by_key(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Gather the values of each key, keys and values in the order of the pairs."""
    found: dict[K, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def first(values: Iterable[T], **wanted: object) -> T | None:
    """Return the first value whose fields are as *wanted*; None where there is none."""
    for name, wish in wanted.items():
        values = [each for each in values if getattr(each, name) == wish]
    return next(iter(values), None)
