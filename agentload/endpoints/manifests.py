"""The arms of a comparison as containers: a compose file or Kubernetes manifests, for people who launch by other means."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml

from agentload.endpoints.arguments import served
from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.endpoints.launch import VISIBLE
from agentload.errors import LaunchError
from agentload.kvmath.vllm import TRIED

IMAGE: Final = "vllm/vllm-openai:v{version}"
CACHE: Final = "/cache"
"""Where the container has the hub's files."""
WEIGHTS: Final = "/weights"
"""Where it has a folder of this machine that is served."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One arm's server, as something that starts containers must know it."""

    image: str
    program: tuple[str, ...]
    """In place of the image's own, which is `vllm serve`; () leaves that."""
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    port: int
    gpus: int
    gpu_ids: tuple[str, ...]
    """() where the arm names none, or a part of one."""
    folder: str | None
    """Of this machine, to be served."""


def container(arm: Endpoint, launch: Launch) -> Container:
    """Turn the launch of an arm into what a container runs."""
    own = () if any("/" in each for each in arm.own_gpus) else tuple(sorted(arm.own_gpus))  # Docker numbers parts in its own way
    words = served(launch.command)
    folder = _folder(words[0]) if words else None
    program, arguments = (_program(launch.command), ()) if words is None else ((), _arguments(words, folder))
    return Container(
        image=_image(arm),
        program=program,
        arguments=arguments,
        # It sees the GPUs that it was given, and counts them from 0.
        environment={"HF_HOME": CACHE} | {name: value for name, value in launch.env.items() if name not in VISIBLE},
        port=urlsplit(arm.url).port or 8000,
        gpus=arm.gpus or len(own) or (arm.tensor_parallel or 1) * (arm.data_parallel or 1),
        gpu_ids=own,
        folder=folder,
    )


def _program(words: Sequence[str]) -> tuple[str, ...]:
    # The image's Python has one name.
    return ("python3" if re.fullmatch(r"python[\d.]*", Path(words[0]).name) else words[0], *words[1:])


def _arguments(words: tuple[str, ...], folder: str | None) -> tuple[str, ...]:
    model, *rest = words
    if "--host" in rest:  # the container's own address is another
        at = rest.index("--host")
        rest = rest[:at] + rest[at + 2 :]
    if folder is None:
        return (model, *rest)
    return (WEIGHTS, *(() if "--served-model-name" in rest else ("--served-model-name", model)), *rest)


def _folder(model: str) -> str | None:
    """Return the folder that is served, where it is one: it is spelled as a path, or is there."""
    path = Path(model).expanduser()
    return str(path.absolute()) if model.startswith((".", "/", "~")) or path.is_dir() else None


def _image(arm: Endpoint) -> str:
    """Name the image of the release that the arm expects; where it expects none, of the one that was tried."""
    found = re.match(r"\d+\.\d+(\.\d+)?(?=$|\+)", str(arm.expect.get("version", "")).removeprefix("v"))
    if found is None or f"{TRIED}.".startswith(f"{found[0]}."):
        return IMAGE.format(version=TRIED)
    return IMAGE.format(version=found[0] if found[1] else f"{found[0]}.0")


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
