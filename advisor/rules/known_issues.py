"""Known issues of this version, GPU, model and set of flags.

The table is dated data, `advisor/known_issues.json`. An issue applies when every fact that
it asks for is known and agrees. Answers measured here outrank a report from elsewhere:
where they are shown to be good, an issue is a reason for a canary, not against the arm.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from advisor.case import Case
from advisor.dtypes import dtype_of, is_quantised, kernel_of
from advisor.evidence import Arm
from advisor.legs import questions
from advisor.steps import Features
from advisor.verdict import Finding, Weight, Word

NEEDS = frozenset({"evidence.arms.observed_dtype"})

ENGINE = "vLLM"  # whose issues these are
HARMFUL = frozenset({"wrong answers", "crash"})


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
    fixed_in: str | None = None  # the first version that was reported to be right


def _issue(entry: dict[str, Any]) -> Issue:
    when = entry["when"]
    if "sm" in when:
        when["sm"] = tuple(when["sm"])
    return Issue(**(entry | {"when": When(**when)}))


@cache
def table() -> tuple[str, tuple[Issue, ...]]:
    """Return the month the table speaks for and its entries."""
    content = json.loads(
        resources.files("advisor").joinpath("known_issues.json").read_text(encoding="utf-8")
    )
    return content["as_of"], tuple(_issue(entry) for entry in content["issues"])


def version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version string."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(int(part) for part in found.group(1).split(".")) if found else ()


def _has(text: str | None, part: str | None) -> bool:
    return part is None or (text is not None and part.lower() in text.lower())


def applies(issue: Issue, case: Case, arm: Arm) -> bool:
    """Say whether *issue* is about this deployment and *arm*."""
    when, deployment, model = issue.when, case.evidence.deployment, case.evidence.model
    longest = max(
        (each.longest for each in case.reach if each.arm == arm.name and each.longest is not None),
        default=0.0,
    )
    running = version(deployment.version or "")
    return (
        _has(deployment.gpu.name, when.gpu)
        and _has(kernel_of(arm, deployment.gpu.sm), when.kernel)
        and _has(model.name, when.model)
        and (when.sm is None or deployment.gpu.sm in when.sm)
        and (when.dtype is None or (dtype_of(arm) or "").startswith(when.dtype))
        and when.quantised in (None, is_quantised(arm))
        and when.expected in (None, arm.expected_dtype)
        and when.attention in (None, model.attention)
        and when.prefix_caching in (None, arm.prefix_caching)
        and (when.head_dim_from is None or (model.head_dim or 0) >= when.head_dim_from)
        and (
            when.tensor_parallel_above is None
            or deployment.tensor_parallel > when.tensor_parallel_above
        )
        and (when.flag is None or any(when.flag in flag for flag in arm.flags))
        and (when.context_above is None or longest > when.context_above)
        and (when.version_from is None or running >= version(when.version_from))
        and (when.version_at_most is None or () < running <= version(when.version_at_most))
    )


def _shown_good(case: Case, arm: str) -> bool:
    found = None if case.spoiled("accuracy", arm, None) else case.accuracy_of(arm, None)
    return found is not None and found.p_not_worse <= case.policy.alpha / 2 < found.worst_p


def _finding(case: Case, arm: Arm, issue: Issue, as_of: str) -> Finding:
    harmful, good = issue.effect in HARMFUL, _shown_good(case, arm.name)
    kind: Weight = "informs"
    asks: Word | None = None
    if harmful and not good:
        kind = "blocks" if issue.certain else "opposes"
        asks = "avoid" if issue.certain else "test further" if issue.state == "open" else None
    return Finding(
        kind=kind,
        message=f"{issue.id}, {issue.state} as of {as_of}: {issue.title}."
        + (" The answers measured here do not show it." if harmful and good else ""),
        flips="paired answers that are shown to be as good" if asks else None,
        remedy=f"upgrade {ENGINE} to {issue.fixed_in}" if asks and issue.fixed_in else None,
        next_step=Features()
        if issue.effect == "crash"
        else questions.first(case, arm.name, None).step,
        source=issue.url,
        leg="safe" if harmful else "pays",
        asks_for=asks,
        prior=True,
    )


def check(case: Case, arm: Arm) -> Iterator[Finding]:
    """Yield one finding an issue that applies."""
    as_of, issues = table()
    yield from (_finding(case, arm, issue, as_of) for issue in issues if applies(issue, case, arm))
