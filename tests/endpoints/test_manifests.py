from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agentload.endpoints.commands import planned
from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.endpoints.manifests import compose, container, kubernetes
from agentload.errors import LaunchError
from agentload.kvmath.pool import TRIED

CURRENT = f"vllm/vllm-openai:v{TRIED}"


def served(*command: str, **fields: Any) -> Endpoint:
    env = fields.pop("env", {})
    return Endpoint(
        name="a",
        url="http://127.0.0.1:8000/v1",
        launch=Launch(command=command or ("vllm", "serve", "M"), env=env),
        **fields,
    )


def service(arm: Endpoint) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(compose([arm]))["services"]["a"]
    return found


def deployed(arm: Endpoint) -> dict[str, Any]:
    (found,) = (
        each for each in yaml.safe_load_all(kubernetes([arm])) if each["kind"] == "Deployment"
    )
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def devices(arm: Endpoint) -> dict[str, Any]:
    (found,) = service(arm)["deploy"]["resources"]["reservations"]["devices"]
    return {name: value for name, value in found.items() if name in {"count", "device_ids"}}


def test_a_compose_file_has_a_service_an_arm_with_the_arguments_after_serve() -> None:
    services = yaml.safe_load(compose(planned("M", has_windows=False)))["services"]
    assert list(services) == ["bf16", "fp8", "fp8-calibrated", "bf16-same-backend"]
    assert services["fp8"]["command"] == [
        "M",
        "--port",
        "8001",
        "--kv-cache-dtype",
        "fp8",
        "--enable-prompt-tokens-details",
    ]
    assert services["fp8"]["image"] == CURRENT


def test_kubernetes_manifests_wait_for_health_keep_the_models_files_and_give_each_arm_its_gpu() -> (
    None
):
    documents = list(yaml.safe_load_all(kubernetes(planned("M", has_windows=False)[:1])))
    assert [document["kind"] for document in documents] == [
        "PersistentVolumeClaim",
        "Deployment",
        "Service",
    ]
    assert "&id" not in kubernetes(planned("M"))
    spec = documents[1]["spec"]["template"]["spec"]
    (vllm,) = spec["containers"]
    assert vllm["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert vllm["startupProbe"]["httpGet"] == {"path": "/health", "port": 8000}
    assert documents[2]["spec"]["selector"] == documents[1]["spec"]["selector"]["matchLabels"]
    claims = [
        each["persistentVolumeClaim"]["claimName"]
        for each in spec["volumes"]
        if "persistentVolumeClaim" in each
    ]
    assert claims == [documents[0]["metadata"]["name"]]
    assert {"name": "HF_HOME", "value": "/cache"} in vllm["env"]
    assert vllm["envFrom"] == [{"secretRef": {"name": "agentload-hub", "optional": True}}]


@pytest.mark.parametrize(
    ("arm", "asked", "profiles"),
    [
        (served(), {"count": 1}, ["by-name"]),
        (served(gpus=2), {"count": 2}, ["by-name"]),
        (served(tensor_parallel=2), {"count": 2}, ["by-name"]),
        (served(env={"CUDA_VISIBLE_DEVICES": "1"}), {"device_ids": ["1"]}, None),
        (served(gpu_ids=("3", "2")), {"device_ids": ["2", "3"]}, None),
        (served(gpu_ids=("0/7",)), {"count": 1}, ["by-name"]),
    ],
)
def test_compose_gives_an_arm_its_own_gpus_and_starts_those_without_one_by_one(
    arm: Endpoint, asked: dict[str, Any], profiles: list[str] | None
) -> None:
    assert (devices(arm), service(arm).get("profiles")) == (asked, profiles)


def test_what_a_container_sees_of_the_gpus_is_not_said_twice() -> None:
    arm = served(env={"CUDA_VISIBLE_DEVICES": "1", "VLLM_SERVER_DEV_MODE": "1"})
    assert service(arm)["environment"] == {"HF_HOME": "/cache", "VLLM_SERVER_DEV_MODE": "1"}
    (vllm,) = deployed(arm)["containers"]
    assert [each["name"] for each in vllm["env"]] == ["HF_HOME", "VLLM_SERVER_DEV_MODE"]


@pytest.mark.parametrize(
    ("gpu", "selector"),
    [
        ("NVIDIA-H100-80GB-HBM3", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}),
        ("H100", None),
        (None, None),
    ],
)
def test_a_node_is_selected_only_by_what_looks_like_its_label(
    gpu: str | None, selector: dict[str, str] | None
) -> None:
    assert deployed(served(gpu=gpu)).get("nodeSelector") == selector


@pytest.mark.parametrize(
    ("version", "image"),
    [
        (None, CURRENT),
        (TRIED.rpartition(".")[0], CURRENT),
        ("0.31", "vllm/vllm-openai:v0.31.0"),
        ("v0.31.1", "vllm/vllm-openai:v0.31.1"),
        ("0.31.1+cpu", "vllm/vllm-openai:v0.31.1"),
        ("0.31.2rc1.dev7+g4ba787e", CURRENT),
    ],
)
def test_an_image_is_one_that_there_is(version: str | None, image: str) -> None:
    assert service(served(expect={} if version is None else {"version": version}))["image"] == image


def test_a_command_that_is_not_vllm_serve_takes_the_place_of_the_images_own() -> None:
    arm = served("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "M")
    words = ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "M"]
    assert (service(arm)["entrypoint"], "command" in service(arm)) == (words, False)
    (vllm,) = deployed(arm)["containers"]
    assert (vllm["command"], "args" in vllm) == (words, False)


def test_a_folder_that_is_served_is_given_to_the_container_under_the_name_it_is_asked_for(
    tmp_path: Path,
) -> None:
    arm = served("vllm", "serve", str(tmp_path), "--host", "127.0.0.1", "--port", "8000")
    assert service(arm)["command"] == [
        "/weights",
        "--served-model-name",
        str(tmp_path),
        "--port",
        "8000",
    ]
    assert f"{tmp_path}:/weights:ro" in service(arm)["volumes"]
    spec = deployed(arm)
    assert {"name": "weights", "hostPath": {"path": str(tmp_path), "type": "Directory"}} in spec[
        "volumes"
    ]
    assert {"name": "weights", "mountPath": "/weights"} in spec["containers"][0]["volumeMounts"]
    (calibrated,) = (each for each in planned("org/M") if each.name == "fp8-calibrated")
    assert calibrated.launch is not None
    made = container(calibrated, calibrated.launch)
    assert made.folder == str(Path("calibrate/M-fp8-kv-tensor").absolute())
    assert made.arguments[:5] == ("/weights", "--port", "8003", "--served-model-name", "org/M")


def test_arms_that_nobody_launches_have_no_manifest() -> None:
    with pytest.raises(LaunchError, match="no arm of the file has a 'launch'"):
        compose([Endpoint(name="a", url="http://127.0.0.1:8000/v1")])


def test_compose_puts_no_variable_where_an_arm_has_a_dollar() -> None:
    found = service(served("vllm", "serve", "M", "--api-key", "a$HOME", env={"B": "$x"}))
    assert (found["command"][-1], found["environment"]["B"]) == ("a$$HOME", "$$x")
