"""The known-issue table: dated data about versions, GPUs, models and flags, read from `known_issues.json`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """State the deployment that an issue is about; None asks nothing."""

    gpu: str | None = None  # part of the GPU's name
    sm: tuple[int, ...] | None = None
    dtype: str | None = None  # how the KV dtype begins
    quantised: bool | None = None
    expected: str | None = None  # the dtype that was asked for
    kernel: str | None = None  # part of the backend's name
    model: str | None = None  # part of the model's name
    attention: str | None = None
    head_dim_from: int | None = None
    tensor_parallel_above: int | None = None
    prefix_caching: bool | None = None
    flag: str | None = None  # part of a server flag
    context_above: float | None = None
    version_from: str | None = None
    version_at_most: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """Hold one entry of the table."""

    id: str
    url: str
    title: str
    state: Literal["open", "closed"]
    effect: Literal["wrong answers", "crash", "slower", "no gain", "no hits", "unclear support"]
    when: When
    certain: bool = False  # seen in every run that was reported


def _issue(entry: dict[str, Any]) -> Issue:
    when = entry["when"]
    if "sm" in when:
        when["sm"] = tuple(when["sm"])
    return Issue(**(entry | {"when": When(**when)}))


@cache
def table() -> tuple[str, tuple[Issue, ...]]:
    """Return the month the table speaks for and its entries."""
    content = json.loads(resources.files(__package__).joinpath("known_issues.json").read_text(encoding="utf-8"))
    return content["as_of"], tuple(_issue(entry) for entry in content["issues"])


def version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version string."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in found.group(1).split(".")) if found else ()
