"""Turns that one arm loses to errors, where the other loses fewer."""

from dataclasses import replace

import numpy as np
import pytest

from advisor.decide import decide
from advisor.evidence import Calls, Evidence
from advisor.policy import Policy
from advisor.rules import lost_turns
from tests.advisor.cases import compared
from tests.advisor.rules.asking import QUIET, findings


def losing(evidence: Evidence, arm: str, sessions: int) -> Evidence:
    """Let an arm lose the last turn of the first sessions."""

    def of(calls: Calls) -> Calls:
        ends = calls.turn == calls.turn.max()
        first = np.unique(calls.session)[:sessions]
        lost = ends & np.isin(calls.session, first)
        return replace(calls, ok=~lost, lost=lost)

    return replace(
        evidence,
        observations=tuple(
            replace(each, calls=of(each.calls)) if each.arm == arm and each.calls else each
            for each in evidence.observations
        ),
    )


EVIDENCE = losing(losing(compared(effect=-0.2, noise=QUIET, items=1500), "bf16", 0), "fp8", 0)


def test_an_arm_that_loses_turns_in_more_sessions_is_tested_further() -> None:
    assert decide(EVIDENCE, Policy()).server[0].verdict == "use"
    evidence = losing(EVIDENCE, "fp8", 8)  # 1.7% of the turns: latencies are comparable
    (found,) = findings(lost_turns, evidence)
    assert found.message == "fp8 lost a turn in 8 of 96 sessions of chat to errors, bf16 in 0."
    assert (found.kind, found.asks_for) == ("opposes", "test further")
    decision = decide(evidence, Policy())
    assert {gate.status for gate in decision.gates if gate.name == "dropped turns"} == {"pass"}
    assert decision.server[0].verdict == "test further"
    assert found.message in decision.server[0].reason


@pytest.mark.parametrize(("theirs", "mine"), [(0, 0), (8, 8), (8, 0), (0, 4), (4, 8)])
def test_losses_that_may_be_chance_or_are_the_references_say_nothing(
    theirs: int, mine: int
) -> None:
    assert findings(lost_turns, losing(losing(EVIDENCE, "bf16", theirs), "fp8", mine)) == []


def test_losses_in_fewer_than_one_session_of_two_hundred_are_no_reason_to_wait() -> None:
    many = losing(compared(effect=-0.2, noise=QUIET, items=0, pairs=600), "bf16", 0)
    assert findings(lost_turns, losing(many, "fp8", 17)) == []  # p is 8e-6
    assert findings(lost_turns, losing(many, "fp8", 18)) != []


def test_turns_that_end_otherwise_than_well_and_were_not_lost_are_no_errors() -> None:
    evidence = losing(EVIDENCE, "fp8", 8)
    assert findings(lost_turns, evidence) != []
    for known in (True, False):
        observations = tuple(
            replace(
                each, calls=replace(each.calls, lost=each.calls.lost & False if known else None)
            )
            for each in evidence.observations
            if each.calls is not None and each.calls.lost is not None
        )
        assert findings(lost_turns, replace(evidence, observations=observations)) == []
