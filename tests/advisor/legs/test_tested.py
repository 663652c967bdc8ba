from __future__ import annotations

from advisor.legs import tested
from advisor.verdict import Leg, LegState, Need

MORE = (Need(what="more"),)


def claim(state: LegState, *, p_for: float | None = None, p_against: float | None = None) -> tested.Tested:
    return tested.Tested(leg=Leg(name="pays", state=state, reason=state), p_for=p_for, p_against=p_against, if_unclear=MORE)


def seen(*legs: tested.Tested, level: float = 0.025) -> list[tuple[LegState, float | None, float | None, bool]]:
    return [(leg.state, leg.p, leg.p_adjusted, leg.needs == MORE) for leg in tested.after_holm(legs, level=level)]


def test_a_claim_alone_is_not_adjusted() -> None:
    assert seen(claim("yes", p_for=0.025)) == [("yes", 0.025, 0.025, False)]
    assert seen(claim("yes", p_for=0.026)) == [("unclear", 0.026, 0.026, True)]


def test_claims_for_an_arm_share_their_level_and_so_do_those_against_it() -> None:
    assert seen(claim("yes", p_for=0.01, p_against=0.9), claim("yes", p_for=0.02, p_against=0.9)) == [
        ("yes", 0.01, 0.02, False),
        ("yes", 0.02, 0.02, False),
    ]
    assert seen(claim("yes", p_for=0.013), claim("no", p_for=0.9, p_against=0.02)) == [
        ("unclear", 0.013, 0.026, True),
        ("no", 0.02, 0.02, False),
    ]


def test_what_claims_nothing_stays_as_it_was() -> None:
    assert seen(claim("equal", p_for=0.5, p_against=0.5), claim("untested")) == [
        ("equal", None, None, False),
        ("untested", None, None, False),
    ]
