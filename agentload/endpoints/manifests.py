"""The arms of a comparison as a compose file or as Kubernetes manifests, for people who launch by other means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import yaml

from agentload.endpoints.container import CACHE, WEIGHTS, Container, container
from agentload.endpoints.endpoint import Endpoint
from agentload.errors import LaunchError
from agentload.kvmath.vllm import TRIED

STORAGE: Final = "200Gi"
HUB: Final = "agentload-hub"
START_S: Final = 1800
ASKED_S: Final = 5
BY_NAME: Final = "by-name"
"""Profile of services that start only when they are named."""
_LABEL: Final = re.compile(r"(NVIDIA|Tesla|Quadro|GRID)-[A-Za-z0-9._-]+")
"""How GPU feature discovery labels nodes, as in NVIDIA-H100-80GB-HBM3; people say H100."""
_IMAGES: Final = f"# Images are of vLLM {TRIED}, which this was tried with, where an arm expects no other release.\n"
COMPOSE: Final = f"""\
{_IMAGES}# On one GPU: docker compose up ARM, one at a time. Arms with GPUs of their own (gpu_ids, CUDA_VISIBLE_DEVICES) run side by side.
"""
KUBERNETES: Final = f"""\
{_IMAGES}# Models that ask for a token: kubectl create secret generic {HUB} --from-literal=HF_TOKEN=...
"""


def compose(arms: Sequence[Endpoint]) -> str:
    """Return a compose file with a service an arm."""
    services = {arm.name: _service(made) for arm, made in _containers(arms)}
    return COMPOSE + yaml.safe_dump({"services": services}, sort_keys=False, width=1000)


def kubernetes(arms: Sequence[Endpoint]) -> str:
    """Return a claim for the model's files, a deployment and a service an arm."""
    documents = [each for arm, made in _containers(arms) for each in (_claim(arm), _deployment(arm, made), _exposed(arm, made))]
    return KUBERNETES + yaml.safe_dump_all(documents, sort_keys=False, width=1000)


def _containers(arms: Sequence[Endpoint]) -> list[tuple[Endpoint, Container]]:
    found = [(arm, container(arm, arm.launch)) for arm in arms if arm.launch is not None]
    if not found:
        raise LaunchError("no arm of the file has a 'launch'", hint="launch: vllm serve MODEL --port 8000")
    return found


def _service(made: Container) -> dict[str, object]:
    device: dict[str, object] = {"driver": "nvidia", "capabilities": ["gpu"]}
    device |= {"device_ids": list(made.gpu_ids)} if made.gpu_ids else {"count": made.gpus}
    return {
        "image": made.image,
        **_started(made, program="entrypoint", arguments="command"),
        "environment": dict(made.environment),
        "ports": [f"{made.port}:{made.port}"],
        "ipc": "host",
        "volumes": [f"~/.cache/huggingface:{CACHE}", *([f"{made.folder}:{WEIGHTS}:ro"] if made.folder else [])],
        "deploy": {"resources": {"reservations": {"devices": [device]}}},
        # Docker counts from the first GPU for each of them, so those that name none do not start together.
        **({} if made.gpu_ids else {"profiles": [BY_NAME]}),
    }


def _deployment(arm: Endpoint, made: Container) -> dict[str, object]:
    name = _label(arm.name)
    volumes: list[dict[str, object]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "cache", "persistentVolumeClaim": {"claimName": name}},
    ]
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "cache", "mountPath": CACHE}]  # noqa: S108  # where NCCL wants room
    if made.folder is not None:
        volumes.append({"name": "weights", "hostPath": {"path": made.folder, "type": "Directory"}})
        mounts.append({"name": "weights", "mountPath": WEIGHTS})
    vllm = {
        "name": "vllm",
        "image": made.image,
        **_started(made, program="command", arguments="args"),
        "env": [{"name": key, "value": value} for key, value in made.environment.items()],
        "envFrom": [{"secretRef": {"name": HUB, "optional": True}}],
        "ports": [{"containerPort": made.port}],
        "resources": {"limits": {"nvidia.com/gpu": made.gpus}},
        "startupProbe": {**_asked(made), "failureThreshold": START_S // ASKED_S},
        "readinessProbe": _asked(made),
        "volumeMounts": mounts,
    }
    spec: dict[str, object] = {"containers": [vllm], "volumes": volumes}
    if arm.gpu is not None and _LABEL.fullmatch(arm.gpu):
        spec["nodeSelector"] = {"nvidia.com/gpu.product": arm.gpu}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    }


def _claim(arm: Endpoint) -> dict[str, object]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": STORAGE}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": _label(arm.name)}, "spec": spec}


def _exposed(arm: Endpoint, made: Container) -> dict[str, object]:
    name = _label(arm.name)
    spec = {"selector": {"app": name}, "ports": [{"port": made.port}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _asked(made: Container) -> dict[str, object]:
    return {"httpGet": {"path": "/health", "port": made.port}, "periodSeconds": ASKED_S}


def _started(made: Container, *, program: str, arguments: str) -> dict[str, object]:
    return {program: list(made.program)} if made.program else {arguments: list(made.arguments)}


def _label(name: str) -> str:
    return "agentload-" + re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
