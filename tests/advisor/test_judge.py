"""Which findings concern a verdict, and what they do to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.decide import assess
from advisor.estimate import Estimate
from advisor.evidence import WorkloadClass
from advisor.judge import MISSED, _of_answers, _of_speed, _word, concerning, inequality, judge
from advisor.policy import Policy
from advisor.verdict import Finding, Leg, LegState, Word
from tests.advisor.cases import BUCKETS, SPREAD, compared
from tests.advisor.worlds import Noise

QUIET = Noise(call=0.02, wander=0.005, phi=0.2, block=0.002)
CLASSES = tuple(
    WorkloadClass(name=name, gpu_time_share=share, context_tokens=SPREAD)
    for name, share in (("chat", 0.95), ("rag", 0.05))
)
CASE = assess(
    compared(effect=-0.2, pairs=16, items=400, noise=QUIET, discordance=0.02, workloads=CLASSES),
    Policy(),
)
SEEN = Finding(kind="opposes", message="seen", leg="pays", arm="fp8")


@pytest.mark.parametrize(
    ("finding", "scopes"),
    [
        (SEEN, {None, "chat", "rag"}),
        (replace(SEEN, arm=None), {None, "chat", "rag"}),
        (replace(SEEN, arm="other"), set()),
        (replace(SEEN, workload="chat"), {"chat"}),
        (replace(SEEN, workload="chat", asks_for="avoid"), {None, "chat"}),
        (replace(SEEN, workload="rag", asks_for="avoid"), {"rag"}),
        (replace(SEEN, workload="chat", asks_for="test further"), {None, "chat"}),
        (replace(SEEN, workload="chat", asks_for="test further", leg="safe"), {"chat"}),
        (replace(SEEN, workload="chat", rule=MISSED), {None, "chat"}),
    ],
)
def test_a_finding_concerns_its_scope_and_the_server_where_a_weighty_class_asks_for_something(
    finding: Finding, scopes: set[str | None]
) -> None:
    assert {
        scope for scope in CASE.scopes() if concerning(CASE, (finding,), "fp8", scope)
    } == scopes


@pytest.mark.parametrize(
    ("tokens", "scopes"), [(None, 3), (BUCKETS[0], 3), (BUCKETS[-1], 3), (BUCKETS[-1] + 1, 0)]
)
def test_a_finding_at_a_length_concerns_who_gets_there(tokens: float | None, scopes: int) -> None:
    found = replace(SEEN, context_tokens=tokens)
    assert sum(bool(concerning(CASE, (found,), "fp8", scope)) for scope in CASE.scopes()) == scopes


@pytest.mark.parametrize(
    ("finding", "canary"),
    [
        (None, False),
        (replace(SEEN, leg="safe"), True),
        (replace(SEEN, leg="validity"), True),
        (replace(SEEN, rule=MISSED), True),
        (SEEN, False),
        (replace(SEEN, leg="safe", kind="informs"), False),
    ],
)
def test_a_switch_goes_behind_a_canary_where_answers_or_their_validity_are_doubted(
    finding: Finding | None,
    canary: bool,  # noqa: FBT001  # a case
) -> None:
    verdict = judge(CASE, () if finding is None else (finding,), "fp8", "chat")
    assert (verdict.verdict, verdict.canary) == ("use", canary)
    assert ("seen" in verdict.reason) == (finding is not None and finding.rule == MISSED)
    assert verdict.flips[0].startswith("a margin (min_change) above ")


@pytest.mark.parametrize(
    ("word", "low", "said"),
    [
        ("test further", -0.04, ["the lower end of accuracy above -3 pp (it is -4.00 pp)"]),
        ("test further", -0.03, ["the lower end of accuracy above -3 pp (it is -3.00 pp)"]),
        ("test further", -0.02, []),
        ("use", -0.02, ["an accuracy margin below 2.0 pp"]),
        ("avoid", -0.04, []),
        ("test further", None, []),
        ("test further", -0.92, []),  # an interval that nobody prints
    ],
)
def test_what_answers_would_have_to_be_is_said_where_they_are_open_or_hold(
    word: Word, low: float | None, said: list[str]
) -> None:
    verdict = judge(CASE, (), "fp8", None)
    high = 0.9 if low == -0.92 else 0.01
    known = Estimate(value=-0.01, low=low, high=high, n=100, unit="share", method="mean")
    safe = replace(verdict.safe, state="yes" if word == "use" else "unclear", estimate=known)
    assert list(_of_answers(CASE, replace(verdict, verdict=word, safe=safe))) == said


@pytest.mark.parametrize(
    ("finding", "word"),
    [
        (replace(SEEN, asks_for="test further"), "test further"),
        (replace(SEEN, asks_for="test further", leg="safe"), "no difference"),
        (replace(SEEN, rule=MISSED), "no difference"),
        (replace(SEEN, asks_for="avoid"), "avoid"),
    ],
)
def test_equal_speed_is_doubted_by_what_is_about_speed_and_asks_for_more(
    finding: Finding, word: str
) -> None:
    pays, safe = (
        # of the table
        Leg(name=name, state=state, reason="turns are alike")  # type: ignore[arg-type]
        for name, state in (("pays", "equal"), ("safe", "yes"))
    )
    assert _word(pays, safe, (finding,), uncalibrated=False)[0] == word


@pytest.mark.parametrize(
    ("word", "state", "low", "high", "said"),
    [
        ("use", "yes", -0.2, -0.1, "a margin (min_change) above 10.0%"),
        ("avoid", "no", 0.1, 0.2, "a margin (min_change) above 10.0%"),
        ("no difference", "equal", -0.01, 0.03, "a margin (min_change) below 1.5%"),
        ("no difference", "equal", -0.04, 0.01, "a margin (min_change) below 2.0%"),
    ],
)
def test_a_verdict_on_speed_says_at_which_smallest_change_it_would_be_another(
    word: Word, state: LegState, low: float, high: float, said: str
) -> None:
    verdict = judge(CASE, (), "fp8", None)
    known = Estimate(
        value=(low + high) / 2, low=low, high=high, n=16, unit="relative", method="mean"
    )
    shown = replace(
        verdict, verdict=word, pays=replace(verdict.pays, state=state, estimate=known, margin=0.03)
    )
    assert list(_of_speed(shown)) == [said]
    for opened in (replace(known, low=None), replace(known, high=None)):
        assert list(_of_speed(replace(shown, pays=replace(shown.pays, estimate=opened)))) == []


@pytest.mark.parametrize(
    ("word", "state", "low", "high"), [("use", "yes", -0.9, -0.31), ("avoid", "no", 0.31, 0.9)]
)
def test_a_smallest_change_of_more_than_ten_times_todays_is_not_named(
    word: Word, state: LegState, low: float, high: float
) -> None:
    verdict = judge(CASE, (), "fp8", None)
    known = Estimate(
        value=(low + high) / 2, low=low, high=high, n=16, unit="relative", method="mean"
    )
    shown = replace(
        verdict, verdict=word, pays=replace(verdict.pays, state=state, estimate=known, margin=0.03)
    )
    assert list(_of_speed(shown)) == []
    assert len(list(_of_speed(replace(shown, pays=replace(shown.pays, margin=0.031))))) == 1


def test_an_open_speed_names_all_three_verdicts_that_it_may_turn_to() -> None:
    verdict = judge(CASE, (), "fp8", None)
    known = Estimate(value=-0.01, low=-0.07, high=0.05, n=16, unit="relative", method="mean")
    shown = replace(
        verdict,
        verdict="test further",
        pays=replace(verdict.pays, state="unclear", estimate=known, margin=0.03),
    )
    assert [each.rpartition(": ")[2] for each in _of_speed(shown)] == [
        "use",
        "avoid",
        "no difference",
    ]
    assert (
        list(_of_speed(shown))[-1] == "the whole interval of turn latency within ±6%: no difference"
    )


@pytest.mark.parametrize(
    ("state", "relation", "holds"), [("no", "<", True), ("unclear", ">", None)]
)
def test_what_decides_about_answers_is_their_margin(
    state: LegState,
    relation: str,
    holds: bool | None,  # noqa: FBT001  # a case
) -> None:
    verdict = judge(CASE, (), "fp8", None)
    found = inequality(
        CASE, replace(verdict, verdict="calibrate", safe=replace(verdict.safe, state=state, p=0.01))
    )
    assert found is not None
    assert (found.left, found.relation, found.right, found.holds) == (
        "accuracy, fp8 - bf16",
        relation,
        "-3 pp",
        holds,
    )
    assert found.observed == verdict.safe.estimate
    assert (
        inequality(CASE, replace(verdict, safe=replace(verdict.safe, state="no", p=None))) is None
    )
