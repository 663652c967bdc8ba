"""Solve what has to be worked out rather than looked up: chains of pointers, the k-th of equal requests, little stories of numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

_ASKS_CHAIN: Final = re.compile(r"start at ([\w-]+) and follow the pointers (\d+) times", re.IGNORECASE)
_POINTS: Final = re.compile(r"([\w-]+) points to ([\w-]+)")
_ASKS_PLACE: Final = re.compile(r"prepend (\S+) to the (\d+)(?:st|nd|rd|th) \(1 indexed\) (\w+) about ([\w-]+)\.", re.IGNORECASE)
_ASKS_COUNT: Final = re.compile(r"how many (\w+) does ([\w-]+) have", re.IGNORECASE)
_STEP: Final = re.compile(r"(has|gets|gives away|doubles)(?: (\d+))?\b")


def solve(question: str, texts: Sequence[str]) -> str | None:
    """Return the right answer; None where the question is of no kind that is known here."""
    return _chain(question, texts) or _place(question, texts) or _count(question, texts)


def _chain(question: str, texts: Sequence[str]) -> str | None:
    asked = _ASKS_CHAIN.search(question)
    if asked is None:
        return None
    points = dict(pair for text in texts for pair in _POINTS.findall(text))
    at: str | None = asked[1]
    for _ in range(int(asked[2])):
        at = points.get(at) if at else None
    return at


def _place(question: str, texts: Sequence[str]) -> str | None:
    asked = _ASKS_PLACE.search(question)
    if asked is None:
        return None
    request = f"write a {asked[3]} about {asked[4]}.".lower()
    said = [reply for heard, reply in pairwise(texts) if heard.strip().lower() == request]
    return f"{asked[1]} {said[int(asked[2]) - 1]}" if int(asked[2]) <= len(said) else None


def _count(question: str, texts: Sequence[str]) -> str | None:
    asked = _ASKS_COUNT.search(question)
    if asked is None:
        return None
    count: int | None = None
    sentences = re.compile(rf"(?<![\w-]){re.escape(asked[2])} ([^.?\n]*)\.")
    for text in texts:
        for step in filter(None, (_STEP.match(told) for told in sentences.findall(text))):
            some = int(step[2] or 0)
            match step[1]:
                case "has":
                    count = some
                case "gets":
                    count = None if count is None else count + some
                case "gives away":
                    count = None if count is None else count - some
                case _:
                    count = None if count is None else count * 2
    return None if count is None else f"#### {count}"
