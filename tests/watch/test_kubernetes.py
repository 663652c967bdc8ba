"""Jobs as manifests for Kubernetes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from agentload.errors import AgentloadError
from agentload.watch.jobs_file import add, read_jobs
from agentload.watch.kubernetes import brought, kubernetes
from tests.watch.test_jobs_file import ENTRY
from tests.watch.test_schedulers import jobs

SCHEMA = Path(__file__).with_name("kubernetes-1.36.schema.json")


def test_a_cluster_gets_the_schedule_with_its_zone_and_never_two_at_once(tmp_path: Path) -> None:
    config, claim, job = yaml.safe_load_all(
        kubernetes(jobs(tmp_path), image="registry/agentload:1")
    )
    assert [each["kind"] for each in (config, claim, job)] == [
        "ConfigMap",
        "PersistentVolumeClaim",
        "CronJob",
    ]
    assert (
        yaml.safe_load(config["data"]["watch.yaml"])["database"]
        == "/var/lib/agentload/watch.duckdb"
    )
    spec = job["spec"]
    assert (spec["schedule"], spec["timeZone"], spec["concurrencyPolicy"]) == (
        "0 2 * * *",
        "Europe/Berlin",
        "Forbid",
    )
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"][:4] == ["agentload", "watch", "run", "nightly"]
    assert {each["name"] for each in pod["volumes"]} == {
        each["name"] for each in pod["containers"][0]["volumeMounts"]
    }


def test_notices_and_logs_of_a_cluster_are_written_where_its_pods_may_write(tmp_path: Path) -> None:
    notify = {
        "digest": "nightly.md",
        "prometheus": "/metrics/nightly.prom",
        "webhook_env": "SLACK_URL",
        "always": True,
    }
    add(tmp_path / "watch.yaml", "second", {**ENTRY, "notify": notify, "launch": True})
    config, *_ = yaml.safe_load_all(kubernetes(jobs(tmp_path), image="registry/agentload:1"))
    told = yaml.safe_load(config["data"]["watch.yaml"])["jobs"]
    assert told["second"]["notify"] == {**notify, "digest": "/var/lib/agentload/nightly.md"}
    assert told["second"]["logs"] == "/var/lib/agentload/logs"
    assert told["nightly"] == ENTRY


def test_a_job_may_group_its_servers_and_name_its_only_trace_by_text(tmp_path: Path) -> None:
    found = jobs(tmp_path)
    content = yaml.safe_load((tmp_path / "watch.yaml").read_text())
    (entry,) = content["jobs"].values()
    content["jobs"]["nightly"] = {
        **{name: value for name, value in entry.items() if name not in {"endpoints", "traces"}},
        "traces": entry["traces"][0],
        "servers": {"endpoints": entry["endpoints"]},
    }
    (tmp_path / "watch.yaml").write_text(yaml.safe_dump(content))
    config, *_ = yaml.safe_load_all(kubernetes(read_jobs(found.path), image="registry/agentload:1"))
    assert yaml.safe_load(config["data"]["watch.yaml"])["jobs"]["nightly"] == entry


def test_a_cluster_gets_the_small_files_that_jobs_name_and_is_told_where_their_traces_go(
    tmp_path: Path,
) -> None:
    for name in (
        "arms.yaml",
        "strict/policy.yaml",
        "other/policy.yaml",
        "mine.jsonl",
        "old/mine.jsonl",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {name}\n")
    one = {
        "traces": ["mine.jsonl", "rag"],
        "endpoints": "arms.yaml",
        "policy": "strict/policy.yaml",
    }
    two = {
        "traces": ["./old/mine.jsonl", "mine.jsonl"],
        "endpoints": "./arms.yaml",
        "policy": str(tmp_path / "other/policy.yaml"),
    }
    three = {
        "endpoints": "/opt/arms.yaml",
        "traces": ["/opt/mine.jsonl"],
        "policy": {"min_change": 0.05},
    }
    for name, said in (("one", one), ("two", two)):
        add(tmp_path / "watch.yaml", name, {**ENTRY, **said})
    content = yaml.safe_load((tmp_path / "watch.yaml").read_text())
    content["jobs"]["three"] = {**ENTRY, **three}  # all of it is in the image
    (tmp_path / "watch.yaml").write_text(yaml.safe_dump(content))
    found = read_jobs(tmp_path / "watch.yaml")
    config, *_ = yaml.safe_load_all(kubernetes(found, image="registry/agentload:1"))
    told = yaml.safe_load(config["data"].pop("watch.yaml"))["jobs"]
    assert config["data"] == {
        "arms.yaml": "# arms.yaml\n",
        "policy.yaml": "# strict/policy.yaml\n",
        "2-policy.yaml": "# other/policy.yaml\n",
    }
    paths = {
        "traces": ["/var/lib/agentload/mine.jsonl", "rag"],
        "endpoints": "arms.yaml",
        "policy": "policy.yaml",
    }
    assert {key: told["one"][key] for key in paths} == paths
    others = {
        "traces": ["/var/lib/agentload/2-mine.jsonl", "/var/lib/agentload/mine.jsonl"],
        "endpoints": "arms.yaml",
        "policy": "2-policy.yaml",
    }
    assert {key: told["two"][key] for key in others} == others
    assert {key: told["three"][key] for key in three} == three
    assert brought(found) == {
        tmp_path / "mine.jsonl": "/var/lib/agentload/mine.jsonl",
        tmp_path / "old/mine.jsonl": "/var/lib/agentload/2-mine.jsonl",
    }
    assert complaints(config) == []


def test_an_arms_file_that_is_not_there_is_said_before_a_cluster_finds_out(tmp_path: Path) -> None:
    (tmp_path / "watch.yaml").write_text(
        yaml.safe_dump({"jobs": {"one": {**ENTRY, "endpoints": "arms.yaml"}}})
    )
    with pytest.raises(AgentloadError, match="no arms file"):
        kubernetes(read_jobs(tmp_path / "watch.yaml"), image="registry/agentload:1")


KINDS = {
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
    "CronJob": "io.k8s.api.batch.v1.CronJob",
}


def complaints(manifest: dict[str, Any]) -> list[str]:
    """Hold a manifest against the schema of its kind."""
    schema = json.loads(SCHEMA.read_text())
    checker = Draft202012Validator(
        {"$defs": schema["$defs"], "$ref": f"#/$defs/{KINDS[manifest['kind']]}"}
    )
    return [each.message for each in checker.iter_errors(manifest)]


def test_manifests_follow_the_schemas_of_kubernetes(tmp_path: Path) -> None:
    add(tmp_path / "watch.yaml", "second", {**ENTRY, "budget": {"minutes": 7.5}})
    manifests = list(yaml.safe_load_all(kubernetes(jobs(tmp_path), image="registry/agentload:1")))
    assert [each["kind"] for each in manifests] == [
        "ConfigMap",
        "PersistentVolumeClaim",
        "CronJob",
        "CronJob",
    ]
    assert [complaints(each) for each in manifests] == [[], [], [], []]


def test_the_schemas_refuse_what_a_cluster_would(tmp_path: Path) -> None:
    *_, job = yaml.safe_load_all(kubernetes(jobs(tmp_path), image="registry/agentload:1"))
    spec = job["spec"]
    assert complaints({**job, "spec": {**spec, "scheduel": "* * * * *"}}) == [
        "Additional properties are not allowed ('scheduel' was unexpected)"
    ]
    assert complaints({**job, "spec": {**spec, "startingDeadlineSeconds": "3600"}}) == [
        "'3600' is not of type 'integer', 'null'"
    ]
    assert complaints(
        {**job, "spec": {key: value for key, value in spec.items() if key != "jobTemplate"}}
    ) == ["'jobTemplate' is a required property"]
