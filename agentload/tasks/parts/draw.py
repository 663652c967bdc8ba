"""Draw what tasks ask for: numbers, names and identifiers, equal for equal seeds on every Python."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import shake_256
from random import Random
from typing import Final, TypeVar

import numpy as np

from agentload.prompts.words import WORDS

T = TypeVar("T")

_WORD: Final = np.array(WORDS, dtype=object)
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def below(rng: Random, bound: int) -> int:
    """Draw a whole number from 0 up to, not including, *bound*."""
    return min(int(rng.random() * bound), bound - 1)


def chosen(rng: Random, options: Sequence[T]) -> T:
    """Draw one of the options."""
    return options[below(rng, len(options))]


def shuffled(rng: Random, options: Sequence[T]) -> list[T]:
    """Return the options in a drawn order."""
    return [each for _, each in sorted(((rng.random(), place), each) for place, each in enumerate(options))]


def sample(rng: Random, options: Sequence[T], count: int) -> list[T]:
    """Draw *count* different options."""
    return shuffled(rng, options)[:count]


def pairs(rng: Random, count: int, *, joint: str = "-") -> list[str]:
    """Draw names of two words; among very many some repeat."""
    first, second = (_WORD[np.frombuffer(_bytes(rng, count), np.uint8)].tolist() for _ in range(2))
    return [f"{left}{joint}{right}" for left, right in zip(first, second, strict=True)]


def numbers(rng: Random, count: int, *, digits: int = 7) -> list[str]:
    """Draw numbers of this many digits, the first of them not 0."""
    least = 10 ** (digits - 1)
    return [str(each) for each in (least + np.frombuffer(_bytes(rng, 8 * count), "<u8") % (9 * least)).tolist()]


def uuids(rng: Random, count: int) -> list[str]:
    """Draw identifiers of the shape of a random UUID."""
    text = _bytes(rng, 16 * count).hex()
    return [f"{u[:8]}-{u[8:12]}-4{u[13:16]}-a{u[17:20]}-{u[20:]}" for u in (text[at : at + 32] for at in range(0, len(text), 32))]


def letters(rng: Random, count: int) -> str:
    """Draw this many capital letters."""
    return "".join(_LETTERS[below(rng, 26)] for _ in range(count))


def different(drawn: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Leave out what is taken."""
    barred = frozenset(taken)
    return [each for each in drawn if each not in barred]


def _bytes(rng: Random, count: int) -> bytes:
    # One draw seeds a whole stream: tens of thousands of names cost microseconds each otherwise.
    return shake_256(rng.random().hex().encode()).digest(count)
