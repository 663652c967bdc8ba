from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from agentload.errors import UsageError
from agentload.report.parts import Rollout
from agentload.report.render import deployment_files, formats, write
from tests.report.golden import assert_golden
from tests.report.telling import made, told


def test_every_picture_that_the_markdown_shows_lies_beside_it(tmp_path: Path) -> None:
    paths = write(told(), tmp_path / "new" / "folder")
    names = {path.relative_to(tmp_path / "new" / "folder").as_posix() for path in paths}
    shown = {f"charts/{chart.name}.svg" for group in told().groups for chart in group.charts}
    assert (
        names
        == {
            "decision.md",
            "decision.html",
            "decision.json",
            "canary.yaml",
            "alerts.yaml",
            "rollback.md",
        }
        | shown
    )
    text = (tmp_path / "new" / "folder" / "decision.md").read_text()
    assert all(f"]({name})" in text for name in shown)


def test_only_the_formats_asked_for_are_written(tmp_path: Path) -> None:
    write(replace(told(), rollout=None), tmp_path, formats=("json",))
    assert [path.name for path in tmp_path.iterdir()] == ["decision.json"]


def test_a_canary_does_not_outlive_its_verdict_but_files_of_yours_do(tmp_path: Path) -> None:
    write(told(), tmp_path, formats=("json",))
    (tmp_path / "alerts.yaml").write_text("# mine\n")
    write(replace(told(), rollout=None), tmp_path, formats=("json",))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alerts.yaml", "decision.json"]


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    first, second = (write(made(), tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_format_is_a_file_of_its_name() -> None:
    assert formats() == ("data", "html", "json", "md", "txt")


def test_a_format_that_does_not_exist_is_named_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no format 'pdf'"):
        write(told(), tmp_path / "r", formats=("json", "pdf"))
    assert not (tmp_path / "r").exists()


def rollout() -> Rollout:
    plan = told().rollout
    assert plan is not None
    return plan


def test_the_files_beside_a_report_are_as_they_were_looked_at() -> None:
    for name, text in deployment_files(rollout()):
        assert_golden(name, text)


def test_the_manifest_is_yaml_that_runs_the_arm_and_splits_the_sessions() -> None:
    deployment, service, route = yaml.safe_load_all(
        dict(deployment_files(rollout()))["canary.yaml"]
    )
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "vllm/vllm-openai:v0.33.0"
    assert container["args"] == ["./calibrated/hybrid-30b-fp8-kv-tensor", *rollout().arguments]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert [target["weight"] for target in route["spec"]["rules"][0]["backendRefs"]] == [67, 33]


def test_the_alerts_are_yaml_with_one_rule_a_limit() -> None:
    rules = yaml.safe_load(dict(deployment_files(rollout()))["alerts.yaml"])["groups"][0]["rules"]
    assert [(rule["alert"], rule["expr"]) for rule in rules] == [
        (limit.name, limit.expression) for limit in rollout().limits
    ]
    assert all(rule["expr"].count("(") == rule["expr"].count(")") for rule in rules)


def test_a_hostile_model_name_stays_one_argument() -> None:
    evil = 'x"\n          image: evil # {{ 7 * 7 }}'
    deployment, *_ = yaml.safe_load_all(
        dict(deployment_files(replace(rollout(), model=evil)))["canary.yaml"]
    )
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert (container["args"][0], container["image"]) == (evil, "vllm/vllm-openai:v0.33.0")


def test_a_build_that_was_never_released_names_no_image() -> None:
    manifest = dict(deployment_files(replace(rollout(), version="0.33.1.dev12+g4ba787e")))[
        "canary.yaml"
    ]
    assert (
        yaml.safe_load(manifest.split("---")[0])["spec"]["template"]["spec"]["containers"][0][
            "image"
        ]
        == "IMAGE"
    )
    assert "no release" in manifest


def test_a_manifest_of_a_server_that_nobody_saw_started_says_that_options_may_be_missing() -> None:
    assert (
        "add to `args`" in dict(deployment_files(replace(rollout(), is_whole=False)))["canary.yaml"]
    )
    assert "add to `args`" not in dict(deployment_files(rollout()))["canary.yaml"]


def test_evidence_that_was_not_measured_says_so_in_the_manifest() -> None:
    assert (
        "was emulated. Measure on your own servers"
        in dict(deployment_files(replace(rollout(), kind="emulated")))["canary.yaml"]
    )
    assert "Measure on your own servers" not in dict(deployment_files(rollout()))["canary.yaml"]
