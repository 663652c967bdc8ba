"""Servers that would each take the whole memory of one GPU when they run side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Final

from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.errors import LaunchError

DEVICES: Final = tuple(map(Path, ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")))
"""Of which a machine with GPUs has one: NVIDIA's driver, AMD's, that of a Linux beside Windows."""
VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_BOUNDED: Final = frozenset({"--gpu-memory-utilization", "--kv-cache-memory-bytes"})
_ELSEWHERE: Final = frozenset({"ssh", "srun", "docker", "podman", "kubectl"})
"""Programs that start it where the GPUs are others, or are given in words of their own."""


def check_apart(arms: Sequence[Endpoint]) -> None:
    """Raise LaunchError where two vLLM servers have the same GPU and neither bounds its memory: the second dies after a minute."""
    if not any(device.exists() for device in DEVICES):
        return
    takers = [(arm.name, gpus(arm.launch)) for arm in arms if arm.launch is not None and _takes_all(arm.launch)]
    for (one, first), (other, second) in combinations(takers, 2):
        if first & second or not first | second:
            raise LaunchError(
                f"'{one}' and '{other}' would each take the memory of {_shown(first & second)}",
                hint="in turn: agentload replay TRACE --endpoints FILE --launch; side by side: launch: {command: …, "
                "env: {CUDA_VISIBLE_DEVICES: …}}, or --gpu-memory-utilization",
            )


def gpus(launch: Launch) -> frozenset[str]:
    """Return the GPUs that a server is shown; empty: whatever is first."""
    said = dict(word.split("=", 1) for word in launch.command if word.startswith(VISIBLE) and "=" in word) | dict(launch.env)
    given = next((said[name] for name in VISIBLE if name in said), "")
    return frozenset(filter(None, (each.strip() for each in given.split(","))))


def _takes_all(launch: Launch) -> bool:
    flags = {word.partition("=")[0].replace("_", "-") for word in launch.command}
    is_vllm = any(Path(word).name == "vllm" or word.startswith("vllm.entrypoints") for word in launch.command)
    return is_vllm and Path(launch.command[0]).name not in _ELSEWHERE and not flags & _BOUNDED


def _shown(shared: frozenset[str]) -> str:
    return f"GPU {', '.join(sorted(shared))}" if shared else "the first GPU"
