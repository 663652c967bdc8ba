"""Known issues of this version, GPU, model and set of flags.

The table is dated data, `advisor/known_issues.json`. An issue applies when every fact that
it asks for is known and agrees. Answers measured here outrank a report from elsewhere:
where they are shown to be good, a harmful issue only informs.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from advisor.case import Case
from advisor.deployment import Deployment, Model
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
    """Name the facts that a deployment must have for an issue to apply; None matches all."""

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
    """Return the month in which the table was last checked, and its entries."""
    file = resources.files("advisor").joinpath("known_issues.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    issues = tuple(_issue(entry) for entry in content["issues"])
    return content["as_of"], issues


def version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version string; () where it has none."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text)
    if found is None:
        return ()
    numbers = found.group(1).split(".")
    return tuple(map(int, numbers))


def _has(text: str | None, part: str | None) -> bool:
    return part is None or (text is not None and part.lower() in text.lower())


def applies(issue: Issue, case: Case, arm: Arm) -> bool:
    """Say whether *issue* is about this deployment and *arm*."""
    when, evidence = issue.when, case.evidence
    lengths = [each.longest for each in case.reach if each.arm == arm.name]
    longest = max((each for each in lengths if each is not None), default=0.0)
    return (
        _is_about_gpus(when, evidence.deployment)
        and _is_about_model(when, evidence.model)
        and _is_about_arm(when, arm)
        and _has(kernel_of(arm, evidence.deployment.gpu.sm), when.kernel)
        and (when.context_above is None or longest > when.context_above)
        and _is_about_version(when, version(evidence.deployment.version or ""))
    )


def _is_about_gpus(when: When, deployment: Deployment) -> bool:
    if not _has(deployment.gpu.name, when.gpu):
        return False
    if when.sm is not None and deployment.gpu.sm not in when.sm:
        return False
    above = when.tensor_parallel_above
    return above is None or deployment.tensor_parallel > above


def _is_about_model(when: When, model: Model) -> bool:
    if not _has(model.name, when.model):
        return False
    if when.attention not in (None, model.attention):
        return False
    return when.head_dim_from is None or (model.head_dim or 0) >= when.head_dim_from


def _is_about_arm(when: When, arm: Arm) -> bool:
    dtype = dtype_of(arm) or ""
    if when.dtype is not None and not dtype.startswith(when.dtype):
        return False
    if when.quantised not in (None, is_quantised(arm)):
        return False
    if when.expected not in (None, arm.expected_dtype):
        return False
    if when.prefix_caching not in (None, arm.prefix_caching):
        return False
    return when.flag is None or any(when.flag in flag for flag in arm.flags)


def _is_about_version(when: When, running: tuple[int, ...]) -> bool:
    first, last = when.version_from, when.version_at_most
    is_late = first is None or running >= version(first)
    return is_late and (last is None or () < running <= version(last))


def _shown_good(case: Case, arm: str) -> bool:
    found = case.accuracy_of(arm, None)
    if found is None or case.spoiler("accuracy", arm, None) is not None:
        return False
    return found.p_not_worse <= case.policy.alpha / 2 < found.worst_p


def _verdict_asked(issue: Issue) -> Word | None:
    if issue.certain:
        return "avoid"
    return "test further" if issue.state == "open" else None


def _finding(case: Case, arm: Arm, issue: Issue, as_of: str) -> Finding:
    is_harmful = issue.effect in HARMFUL
    is_disproved = is_harmful and _shown_good(case, arm.name)
    message = f"{issue.id}, {issue.state} as of {as_of}: {issue.title}."
    kind: Weight = "informs"
    asks: Word | None = None
    if is_disproved:
        message += " The answers measured here do not show it."
    elif is_harmful:
        kind = "blocks" if issue.certain else "opposes"
        asks = _verdict_asked(issue)
    step = Features() if issue.effect == "crash" else questions.first(case, arm.name, None).step
    return Finding(
        kind=kind,
        message=message,
        flips="paired answers that are shown to be as good" if asks else None,
        remedy=f"upgrade {ENGINE} to {issue.fixed_in}" if asks and issue.fixed_in else None,
        next_step=step,
        source=issue.url,
        leg="safe" if is_harmful else "pays",
        asks_for=asks,
        prior=True,
    )


def check(case: Case, arm: Arm) -> Iterator[Finding]:
    """Yield a finding for each issue that applies."""
    as_of, issues = table()
    yield from (_finding(case, arm, issue, as_of) for issue in issues if applies(issue, case, arm))
