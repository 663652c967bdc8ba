"""What is decided on a run, and what it was decided on and with."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload.errors import AgentloadError, EvidenceError, StoreError
from agentload.report.advise import advise
from agentload.verdict.policy import Setting, parse
from agentload.verdict.verdict import _profiles, verdict
from tests.verdict.test_comparison import rows, stored


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(tmp_path_factory.mktemp("runs"), rows("r1"), rows("r2"))


def test_a_verdict_holds_the_decision_that_a_report_words(database: Path) -> None:
    setting = parse({"load": {"peak_agents": 42}, "min_change": 0.07}, at="p.yaml")
    found = verdict(database, "r1", setting=setting)
    worded = advise(database, "r1", setting=setting)
    assert (worded.decision, worded.policy) == (found.decision, found.setting.policy)
    assert found.setting == setting
    assert (found.evidence.run, found.evidence.deployment.peak_agents) == ("r1", 42)


def test_a_verdict_is_on_a_run_that_is_there(database: Path) -> None:
    assert verdict(database, None, setting=Setting()).evidence.run in {"r1", "r2"}
    with pytest.raises(StoreError, match="no run 'r9'"):
        verdict(database, "r9", setting=Setting())


def test_the_reference_of_a_verdict_is_one_of_the_arms(database: Path) -> None:
    setting = Setting()
    assert verdict(database, "r1", setting=setting, reference="fp8").decision.reference == "fp8"
    with pytest.raises(EvidenceError, match="no arm 'int4'"):
        verdict(database, "r1", setting=setting, reference="int4")


def test_a_profile_that_was_named_must_be_there(database: Path) -> None:
    with pytest.raises(AgentloadError, match="no profile 'gone'"):
        verdict(database, "r1", setting=Setting(), profile="gone")


def test_an_arm_whose_name_has_a_slash_names_no_profile() -> None:
    """A database may hold one from before such names were refused."""
    assert _profiles([("fp8/tp2", None)], None) == ({}, ())
    found, missing = _profiles(
        [("fp8/tp2", None), ("fp8", None), ("x", "gone/fp8/tp2")], "gpt-oss-20b-h100"
    )
    assert (list(found), missing) == (["fp8"], ("gone/fp8",))
