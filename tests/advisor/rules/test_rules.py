from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from advisor import rulebook, rules
from advisor.case import Case
from advisor.evidence import Arm, Observation, Telemetry, WorkloadClass
from advisor.verdict import Finding
from tests.advisor.cases import BF16, FP8, bare
from tests.advisor.rules.asking import case, chat_class


def test_every_rule_is_one_file_with_a_message_its_needs_and_a_check() -> None:
    found = rulebook.modules(rules)
    assert len(found) >= 23
    for module in found:
        assert str(module.__doc__).partition("\n\n")[0].strip().endswith("."), module.__name__
        assert module.NEEDS
        assert callable(module.check)


def test_a_rule_whose_inputs_are_missing_is_listed_with_what_it_lacks() -> None:
    findings, skipped = rulebook.run(case(bare()))
    told = {each.rule: each.missing for each in skipped}
    assert told["draft_acceptance"] == ("evidence.observations.telemetry.acceptance_rate",)
    assert told["gain_lost_under_load"] == ("itl", "speeds")
    assert {each.rule for each in findings}.isdisjoint(told)


def test_an_observation_without_calls_hurts_no_rule() -> None:
    evidence = bare(
        observations=(Observation(workload="chat", arm="fp8", telemetry=Telemetry(hit_rate=0.5)),)
    )
    findings, _ = rulebook.run(case(evidence))
    assert {each.rule for each in findings} >= {"missing_evidence"}


def test_a_rule_of_another_package_that_cannot_be_used_is_listed_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "odd_rules-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-rules\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[agentload.rules]\nunloadable = odd_rule_broken\nempty = odd_rule_empty\nnoise_floor = x\n"
    )
    (tmp_path / "odd_rule_broken.py").write_text("import what_is_not_there\n")
    (tmp_path / "odd_rule_empty.py").write_text("NEEDS = frozenset()\n")
    before, _ = rulebook.run(case(bare()))
    monkeypatch.syspath_prepend(tmp_path)
    rulebook.all_rules.cache_clear()
    try:
        findings, skipped = rulebook.run(case(bare()))
    finally:
        rulebook.all_rules.cache_clear()
    assert findings == before
    assert {each.rule: each.missing for each in skipped[-3:]} == {
        "unloadable": (
            (
                "the package odd-rules, which cannot be loaded: ModuleNotFoundError: No module "
                "named 'what_is_not_there'"
            ),
        ),
        "empty": ("check, which the package odd-rules does not define",),
        "noise_floor": ("another name: that of the package odd-rules is taken",),
    }


def test_a_rule_looks_once_in_each_scope_that_its_parameters_name() -> None:
    def check(case: Case, workload: WorkloadClass, arm: Arm) -> Finding:
        return Finding(
            kind="informs", message=f"{case.evidence.run}: {workload.name} on {arm.name}"
        )

    evidence = bare(
        arms=(BF16, FP8, replace(FP8, name="third")),
        workloads=(chat_class(), chat_class(name="code")),
    )
    found = list(rulebook.findings(check, case(evidence)))
    assert [(each.workload, each.arm) for each in found] == [
        ("chat", "fp8"),
        ("chat", "third"),
        ("code", "fp8"),
        ("code", "third"),
    ]
    assert found[0].message == "r1: chat on fp8"
    assert list(rulebook.findings(lambda case: None, case(evidence))) == []
