"""Write a replay from many nodes as a RayJob for Kubernetes.

KubeRay starts a cluster for the job, runs the command on its head, and removes the cluster.
"""

import re
import shlex
from pathlib import Path
from typing import Any, Final

import yaml

from agentload.errors import UsageError
from agentload.study.argv import command
from agentload.study.change import extend
from agentload.study.kinds import Replay
from agentload.study.parts import Live

HOME: Final = "/var/lib/agentload"
NAME: Final = "agentload"
CORES: Final = "2"
"""Cores of a node: one for the process that makes calls, one for Ray and the kernel."""


def rayjob(study: Replay, *, image: str | None, database: Path) -> str:
    """Return the manifest as YAML, with comments above that name what the job needs.

    Raises UsageError where an option is missing.
    """
    if image is None or study.nodes is None:
        raise UsageError(
            "--print kuberay needs to know which image, and how many nodes",
            hint="--image IMAGE --nodes 4",
        )
    if study.share is not None and not Path(study.share).is_relative_to(HOME):
        raise UsageError(
            f"--share {study.share}: pods see one folder, {HOME}",
            hint=f"--share {HOME}/shards, or leave it out",
        )
    job = extend(study, on="ray", share=study.share or f"{HOME}/shards")
    entry = command(job, db=f"{HOME}/{database.name}")
    manifest = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": f"{NAME}-replay"},
        "spec": {
            "entrypoint": entry,
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": 300,
            # The user starts a second attempt, with --resume, after seeing why the first one ended.
            "backoffLimit": 0,
            "rayClusterSpec": {
                # The head runs the driver and no load, so Ray may use none of its cores.
                "headGroupSpec": {
                    "rayStartParams": {"num-cpus": "0"},
                    "template": _pod("ray-head", image),
                },
                "workerGroupSpecs": [
                    {
                        "groupName": "nodes",
                        "replicas": study.nodes,
                        "minReplicas": study.nodes,
                        "maxReplicas": study.nodes,
                        "rayStartParams": {},
                        "template": _pod("ray-worker", image, is_apart=True),
                    }
                ],
            },
        },
    }
    return "".join(f"# {line}\n" for line in _needs(study, image)) + yaml.safe_dump(
        manifest, sort_keys=False, allow_unicode=True
    )


def _pod(name: str, image: str, *, is_apart: bool = False) -> dict[str, Any]:
    """Return the pod template of a node.

    With *is_apart* no two such pods share a machine, its cores and its network card.
    """
    size = {"cpu": CORES, "memory": "4Gi"}
    container = {
        "name": name,
        "image": image,
        "env": [{"name": "RAY_USAGE_STATS_ENABLED", "value": "0"}],
        "envFrom": [{"secretRef": {"name": NAME, "optional": True}}],
        "resources": {"requests": dict(size), "limits": dict(size)},
        "volumeMounts": [{"name": "data", "mountPath": HOME}],
    }
    spec: dict[str, Any] = {
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": NAME}}],
    }
    if is_apart:
        others = {
            "labelSelector": {"matchLabels": {"app": f"{NAME}-node"}},
            "topologyKey": "kubernetes.io/hostname",
        }
        spec["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [others]}
        }
    return {"metadata": {"labels": {"app": f"{NAME}-node"}} if is_apart else {}, "spec": spec}


def _needs(study: Replay, image: str) -> list[str]:
    assert isinstance(study.servers, Live), study.servers
    named = (*(each.path for each in study.traces), study.servers.endpoints, study.tokenizer)
    files = [
        shlex.quote(each)
        for each in named
        if each is not None and re.search(r"[./]", each) and Path(each).is_file()
    ]
    return [
        f"the image needs agentload[ray]: {image}",
        (
            f"every node sees the claim '{NAME}' (ReadWriteMany) at {HOME}, where the database "
            "and the shards go"
        ),
        *([f"the image's working directory needs: {' '.join(files)}"] if files else []),
        f"keys of endpoints come from the secret '{NAME}', where there is one",
    ]
