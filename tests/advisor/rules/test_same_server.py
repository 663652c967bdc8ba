"""Two servers that say the same, answer the same and take the same time: nothing is compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.decide import decide
from advisor.evidence import Evidence
from advisor.verdict import Word
from tests.advisor.cases import compared
from tests.advisor.rules.asking import QUIET
from tests.advisor.rules.test_broken import Right, always, canary


def twins(*, effect: float, pairs: int = 1, arm: Right | None = None) -> Evidence:
    evidence = compared(
        effect=effect, pairs=pairs, noise=QUIET, accuracy=() if arm is None else canary(arm)
    )
    return replace(
        evidence, arms=tuple(replace(each, twin=each.name == "fp8") for each in evidence.arms)
    )


def some_lost(length: float, context: int, depth: float) -> bool:
    return context > 0 or depth > 0.5


@pytest.mark.parametrize(
    ("evidence", "word"),
    [
        (twins(effect=0.0, arm=always), "no difference"),
        (twins(effect=0.0), "no difference"),
        (twins(effect=0.0, pairs=12, arm=always), "no difference"),
        (twins(effect=0.2, arm=always), "test further"),
        (twins(effect=0.0, arm=some_lost), "test further"),
    ],
)
def test_servers_that_say_the_same_are_no_comparison_unless_measurement_tells_them_apart(
    evidence: Evidence, word: Word
) -> None:
    assert decide(evidence).server[0].verdict == word


def test_the_hint_is_to_check_the_flags() -> None:
    decision = decide(twins(effect=0.0, arm=always))
    said = decision.server[0].reason
    assert said.startswith("bf16 and fp8 say that they are the same configuration, turns take ")
    assert said.endswith(
        "and 36 of 36 answers are alike: this is no comparison. Check that the flags of "
        "fp8 reached its server."
    )
    assert decision.choice.headline == "stay on bf16: fp8 says that it is the same; check its flags"


def test_servers_that_say_different_things_are_compared_however_alike_they_are() -> None:
    alike = compared(effect=0.0, pairs=1, noise=QUIET, accuracy=canary(always))
    assert not [each for each in decide(alike).findings if each.rule == "same_server"]
