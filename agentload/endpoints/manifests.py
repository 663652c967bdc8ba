"""The arms of a comparison as a compose file or as Kubernetes manifests, for people who launch by other means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import yaml

from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.errors import LaunchError
from agentload.kvmath.vllm import CURRENT

IMAGE: Final = "vllm/vllm-openai:v{version}"
CACHE: Final = "/cache"  # where the container has the hub's files
START_S: Final = 1800


def compose(arms: Sequence[Endpoint]) -> str:
    """Return a compose file with a service an arm."""
    services = {arm.name: _service(arm, launch) for arm, launch in _launches(arms)}
    return yaml.safe_dump({"services": services}, sort_keys=False, width=1000)


def kubernetes(arms: Sequence[Endpoint]) -> str:
    """Return a deployment and a service an arm."""
    documents = [document for arm, launch in _launches(arms) for document in (_deployment(arm, launch), _exposed(arm))]
    return yaml.safe_dump_all(documents, sort_keys=False, width=1000)


def _launches(arms: Sequence[Endpoint]) -> list[tuple[Endpoint, Launch]]:
    found = [(arm, arm.launch) for arm in arms if arm.launch is not None]
    if not found:
        raise LaunchError("no arm of the file has a 'launch'", hint="launch: vllm serve MODEL --port 8000")
    return found


def _service(arm: Endpoint, launch: Launch) -> dict[str, object]:
    port = _port(arm)
    devices = [{"driver": "nvidia", "count": arm.gpus or 1, "capabilities": ["gpu"]}]
    return {
        "image": _image(arm),
        "command": _arguments(launch),
        "environment": {"HF_HOME": CACHE, **launch.env},
        "ports": [f"{port}:{port}"],
        "ipc": "host",
        "volumes": [f"~/.cache/huggingface:{CACHE}"],
        "deploy": {"resources": {"reservations": {"devices": devices}}},
    }


def _deployment(arm: Endpoint, launch: Launch) -> dict[str, object]:
    name, port = _label(arm.name), _port(arm)
    probe: Mapping[str, object] = {"httpGet": {"path": "/health", "port": port}, "periodSeconds": 5}
    container = {
        "name": "vllm",
        "image": _image(arm),
        "args": _arguments(launch),
        "env": [{"name": key, "value": value} for key, value in launch.env.items()],
        "ports": [{"containerPort": port}],
        "resources": {"limits": {"nvidia.com/gpu": arm.gpus or 1}},
        "startupProbe": {**probe, "failureThreshold": START_S // 5},
        "readinessProbe": dict(probe),
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108  # the container's, where NCCL wants room
    }
    spec: dict[str, object] = {"containers": [container], "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}]}
    if arm.gpu is not None:
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


def _exposed(arm: Endpoint) -> dict[str, object]:
    name = _label(arm.name)
    spec = {"selector": {"app": name}, "ports": [{"port": _port(arm)}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _arguments(launch: Launch) -> list[str]:
    """Return what the image's own command, `vllm serve`, is given."""
    words = list(launch.command)
    return words[words.index("serve") + 1 :] if "serve" in words else words


def _image(arm: Endpoint) -> str:
    return IMAGE.format(version=arm.expect.get("version", CURRENT))


def _port(arm: Endpoint) -> int:
    return urlsplit(arm.url).port or 8000


def _label(name: str) -> str:
    return "agentload-" + re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")
