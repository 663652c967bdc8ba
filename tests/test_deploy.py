"""The kustomize folder is what a cluster, vLLM's options and agentload understand."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from jsonschema import Draft202012Validator

from agentload.endpoints.commands import COMMON, launch_plan
from agentload.endpoints.read import read_file
from agentload.kvmath.pool import TRIED
from agentload.watch.jobs_file import read_jobs
from tests.cli.test_help import understood

FOLDER: Final = Path(__file__).parents[1] / "deploy" / "kustomize"
SCHEMA: Final = Path(__file__).with_name("kubernetes-1.36.schema.json")
DEFINITIONS: Final = {
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim",
    "CronJob": "io.k8s.api.batch.v1.CronJob",
}
POD: Final = "io.k8s.api.core.v1.PodTemplateSpec"


def manifests(*places: str) -> list[dict[str, Any]]:
    found = (yaml.safe_load_all((FOLDER / place).read_text()) for place in places)
    return [each for documents in found for each in documents]


SERVER: Final = manifests("base/server.yaml")
WATCH: Final = manifests("watch/cronjob.yaml")


def complaints(manifest: dict[str, Any], definition: str) -> list[str]:
    schema = json.loads(SCHEMA.read_text())
    checker = Draft202012Validator({"$defs": schema["$defs"], "$ref": f"#/$defs/{definition}"})
    return [each.message for each in checker.iter_errors(manifest)]


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    found: dict[str, Any] = (spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec)[
        "template"
    ]
    return found


DEPLOYMENT: Final = next(each for each in SERVER if each["kind"] == "Deployment")
CRON_JOB: Final = next(each for each in WATCH if each["kind"] == "CronJob")


@pytest.mark.parametrize("manifest", [*SERVER, *WATCH], ids=lambda each: each["kind"])
def test_manifests_follow_the_schemas_of_kubernetes(manifest: dict[str, Any]) -> None:
    definition = DEFINITIONS.get(manifest["kind"])
    if definition is not None:
        assert complaints(manifest, definition) == []


@pytest.mark.parametrize("manifest", [DEPLOYMENT, CRON_JOB], ids=lambda each: each["kind"])
def test_a_pod_follows_the_schema_and_mounts_the_volumes_that_it_has(
    manifest: dict[str, Any],
) -> None:
    template = pod(manifest)
    assert complaints(template, POD) == []
    (container,) = template["spec"]["containers"]
    assert {each["name"] for each in template["spec"]["volumes"]} == {
        each["name"] for each in container["volumeMounts"]
    }


def test_the_schemas_refuse_what_a_cluster_would() -> None:
    wrong = {**CRON_JOB, "spec": {**CRON_JOB["spec"], "scheduel": "* * * * *"}}
    assert complaints(wrong, DEFINITIONS["CronJob"]) == [
        "Additional properties are not allowed ('scheduel' was unexpected)"
    ]


def test_the_cron_job_types_a_command_of_ours_and_is_due_when_its_job_is() -> None:
    (container,) = pod(CRON_JOB)["spec"]["containers"]
    program, *words = container["command"]
    typed = understood(words)
    assert program == "agentload"
    assert typed["scheduled"]
    job = read_jobs(FOLDER / "watch" / Path(typed["file"]).name).named(typed["name"])
    spec = CRON_JOB["spec"]
    assert (spec["schedule"], spec["timeZone"]) == (job.schedule.cron, job.schedule.time_zone)
    assert spec["jobTemplate"]["spec"]["activeDeadlineSeconds"] == job.timeout_s
    assert spec["concurrencyPolicy"] == "Forbid"


def overlay(arm: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        (FOLDER / "arms" / arm / "kustomization.yaml").read_text()
    )
    return found


def test_there_is_an_overlay_for_each_arm_of_the_arms_file() -> None:
    arms = read_file(FOLDER / "watch" / "endpoints.yaml")
    whole = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert [f"arms/{arm.name}" for arm in arms] == whole["resources"][:-1]
    for arm in arms:
        assert overlay(arm.name)["nameSuffix"] == f"-{arm.name}"
        assert arm.url == f"http://agentload-{arm.name}:8000/v1"


@pytest.mark.parametrize("name", ["bf16", "fp8"])
def test_an_arm_has_the_options_that_launch_prints(name: str) -> None:
    (container,) = pod(DEPLOYMENT)["spec"]["containers"]
    model, *common = container["args"]
    (recipe,) = (arm for arm in launch_plan(model, has_windows=False) if arm.name == name)
    assert recipe.launch is not None
    own = [
        each["value"]
        for patch in overlay(name)["patches"]
        for each in yaml.safe_load(patch["patch"])
    ]
    printed = " ".join(recipe.launch.command)
    assert all(each.replace("=", " ") in printed for each in own)
    assert set(COMMON) <= set(common)
    assert container["image"].endswith(f":v{TRIED}")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl puts the overlays together")
def test_kubectl_makes_a_server_of_each_arm_and_one_job() -> None:
    made = subprocess.run(
        ["kubectl", "kustomize", FOLDER], capture_output=True, text=True, check=True
    )
    found = [(each["kind"], each) for each in yaml.safe_load_all(made.stdout)]
    arms = [each for kind, each in found if kind == "Deployment"]
    assert [each["metadata"]["name"] for each in arms] == ["agentload-bf16", "agentload-fp8"]
    assert [pod(each)["spec"]["containers"][0]["args"][-1] for each in arms] == [
        "--kv-cache-dtype=bfloat16",
        "--kv-cache-dtype=fp8",
    ]
    (config,) = (each for kind, each in found if kind == "ConfigMap")
    (job,) = (each for kind, each in found if kind == "CronJob")
    (mounted,) = (each for each in pod(job)["spec"]["volumes"] if each["name"] == "config")
    assert mounted["configMap"]["name"] == config["metadata"]["name"]
    assert set(config["data"]) == {"watch.yaml", "endpoints.yaml"}
    assert complaints(config, DEFINITIONS["ConfigMap"]) == []
