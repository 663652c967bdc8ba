from __future__ import annotations

from advisor import plugins, rulebook, rules
from advisor.evidence import (
    Observation,
    Telemetry,
)
from tests.advisor.cases import bare
from tests.advisor.rules.asking import case


def test_every_rule_is_one_file_with_a_message_its_needs_and_a_check() -> None:
    found = plugins.modules(rules)
    assert len(found) >= 23
    for module in found:
        assert plugins.first_sentence(module).endswith("."), module.__name__
        assert module.NEEDS
        assert callable(module.check)


def test_a_rule_whose_inputs_are_missing_is_listed_with_what_it_lacks() -> None:
    findings, skipped = rulebook.run(case(bare()))
    told = {each.rule: each.missing for each in skipped}
    assert told["draft_acceptance"] == ("evidence.observations.telemetry.acceptance_rate",)
    assert told["gain_lost_under_load"] == ("itl", "speeds")
    assert {each.rule for each in findings}.isdisjoint(told)


def test_an_observation_without_calls_hurts_no_rule() -> None:
    evidence = bare(observations=(Observation(workload="chat", arm="fp8", telemetry=Telemetry(hit_rate=0.5)),))
    findings, _ = rulebook.run(case(evidence))
    assert {each.rule for each in findings} >= {"missing_evidence"}
