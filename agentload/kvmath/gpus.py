"""Peak figures of server GPUs, found by the names that people, drivers and cluster labels use."""

import re
from typing import Final

import msgspec

from agentload import documents
from agentload.model.profile import Gpu

_TABLE: Final = tuple(
    (re.compile(rf"(?<![a-z0-9])(?:{each['also']})(?![a-z0-9])"), msgspec.convert(each, Gpu))
    for each in documents.own_document("agentload.kvmath", "gpus.yaml")
)
NAMES: Final = tuple(gpu.name for _, gpu in _TABLE)


def gpu_named(name: str) -> Gpu | None:
    """Return the GPU of a name such as `NVIDIA-H100-80GB-HBM3`; None if it is unknown."""
    return next((gpu for pattern, gpu in _TABLE if pattern.search(name.lower())), None)
