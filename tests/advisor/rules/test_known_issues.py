"""The table of known issues, and what it does to a deployment that one describes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.deployment import Deployment, GpuFacts, Model
from advisor.rules import known_issues
from advisor.rules.known_issues import Issue, When, table, version
from advisor.steps import Features
from tests.advisor.cases import BF16, FP8, H100, bare, compared
from tests.advisor.rules.asking import case, chat_class, findings


def test_the_issue_table_is_dated_linked_and_free_of_repeats() -> None:
    as_of, issues = table()
    assert as_of == "2026-09"
    assert len({each.id for each in issues}) == len(issues) >= 20
    assert all(each.url.startswith("https://github.com/") for each in issues)


@pytest.mark.parametrize("issue", table()[1], ids=lambda issue: issue.id)
def test_an_issue_applies_to_the_deployment_it_describes_and_to_no_plain_llama(
    issue: Issue,
) -> None:
    when = issue.when
    gpu = GpuFacts(name=when.gpu or "H100-SXM", sm=when.sm[0] if when.sm else 90)
    arm = replace(
        FP8,
        observed_dtype=when.dtype if when.dtype not in (None, "fp8") else "fp8_e4m3",
        expected_dtype=when.expected or "fp8",
        kernel=when.kernel or "NONE",
        prefix_caching=when.prefix_caching,
        flags=(f"--{when.flag}",) if when.flag else (),
    )
    model = Model(
        name=when.model or "other",
        head_dim=when.head_dim_from,
        attention="hybrid" if when.attention else "gqa",
    )
    running = when.version_from or when.version_at_most or "0.33.0"
    described = bare(
        arms=(BF16, arm),
        model=model,
        deployment=Deployment(
            gpu=gpu, version=running, tensor_parallel=1 + (when.tensor_parallel_above or 0)
        ),
        workloads=(chat_class(context_tokens=np.full(3, 1 + (when.context_above or 0.0))),),
    )
    assert known_issues.applies(issue, case(described), arm)
    assert not known_issues.applies(issue, case(bare()), FP8)


def test_the_hopper_kernel_before_its_fix_is_a_veto_until_answers_measured_here_are_good() -> None:
    old = Deployment(gpu=H100, version="0.10.2")
    found = findings(known_issues, bare(deployment=old))
    assert [(each.kind, each.asks_for, each.prior) for each in found] == [("blocks", "avoid", True)]
    unnamed = bare(
        deployment=old, arms=(BF16, replace(FP8, kernel="FLASH_ATTN"))
    )  # by a server whose log nobody read
    assert len(findings(known_issues, unnamed)) == 1
    good = findings(known_issues, compared(effect=0.0, deployment=old, items=400, discordance=0.03))
    assert [(each.kind, each.asks_for) for each in good] == [("informs", None)]
    assert "measured here do not show it" in good[0].message
    asked = compared(effect=0.0, deployment=old, items=400, discordance=0.03)
    hardly = tuple(
        replace(each, both=80, reference_only=0, arm_only=0, neither=320) for each in asked.accuracy
    )  # nothing to lose
    assert [each.asks_for for each in findings(known_issues, replace(asked, accuracy=hardly))] == [
        "avoid"
    ]


@pytest.mark.parametrize(
    ("text", "numbers"), [("0.33.0", (0, 33, 0)), ("v0.19.1rc2.dev3", (0, 19, 1)), ("nightly", ())]
)
def test_versions_are_read_by_their_leading_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert version(text) == numbers


@pytest.mark.parametrize(
    ("when", "speaks"),
    [
        (When(), True),
        (When(head_dim_from=1), True),
        (When(head_dim_from=128), True),
        (When(head_dim_from=129), False),
        (When(tensor_parallel_above=0), True),
        (When(tensor_parallel_above=1), False),
        (When(context_above=131_071.0), True),
        (When(context_above=131_072.0), False),
        (When(version_from="0.33.0"), True),
        (When(version_from="0.33.1"), False),
        (When(version_at_most="0.33.0"), True),
        (When(version_at_most="0.32.9"), False),
        (When(sm=(80, 90)), True),
        (When(sm=(80,)), False),
        (When(quantised=True), True),
        (When(quantised=False), False),
        (When(dtype="fp8"), True),
        (When(dtype="nvfp4"), False),
        (When(expected="fp8"), True),
        (When(expected="auto"), False),
        (When(prefix_caching=True), True),
        (When(prefix_caching=False), False),
        (When(attention="gqa"), True),
        (When(attention="mla"), False),
        (When(flag="x"), False),
        (When(gpu="h100"), True),
        (When(kernel="fa2"), False),
        (When(model="qwen"), False),
    ],
)
def test_an_issue_applies_where_every_fact_that_it_asks_for_agrees(
    when: When,
    speaks: bool,  # noqa: FBT001  # a case
) -> None:
    issue = Issue(
        id="one", url="https://github.com/x", title="it", state="open", effect="slower", when=when
    )
    assert known_issues.applies(issue, case(bare()), FP8) == speaks
    nameless = case(bare(model=replace(bare().model, head_dim=None)))
    assert known_issues.applies(issue, nameless, FP8) == (speaks and when.head_dim_from is None)
    unknown = case(
        bare(deployment=replace(bare().deployment, version=None, gpu=replace(H100, sm=None)))
    )
    if when.version_at_most or when.version_from or when.sm:
        assert not known_issues.applies(issue, unknown, FP8)


@pytest.mark.parametrize(
    ("issue", "kind", "asks", "leg"),
    [
        (("wrong answers", "open", True), "blocks", "avoid", "safe"),
        (("wrong answers", "open", False), "opposes", "test further", "safe"),
        (("wrong answers", "closed", False), "opposes", None, "safe"),
        (("crash", "closed", True), "blocks", "avoid", "safe"),
        (("slower", "open", True), "informs", None, "pays"),
    ],
)
def test_what_an_issue_asks_for_follows_from_what_it_does(
    issue: tuple[Any, Any, bool], kind: str, asks: str | None, leg: str
) -> None:
    effect, state, certain = issue
    known = Issue(
        id="one",
        url="https://github.com/x",
        title="it",
        state=state,
        effect=effect,
        when=When(),
        certain=certain,
        fixed_in="9.9",
    )
    found = known_issues._finding(case(bare()), FP8, known, "2026-09")
    assert (found.kind, found.asks_for, found.leg, found.prior) == (kind, asks, leg, True)
    assert found.remedy == ("upgrade vLLM to 9.9" if asks else None)
    assert (found.next_step == Features()) == (effect == "crash")
    assert (found.flips is not None) == (asks is not None)
