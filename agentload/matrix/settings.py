"""Settings of `vllm serve` as words of its command, as names of arms, and as what its server must then say."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Final

from agentload.endpoints.keys import holds_key
from agentload.errors import UsageError
from agentload.kvmath.vllm import TRIED
from agentload.matrix.described import Settings

OURS: Final = frozenset({"port", "host", "uds", "served-model-name"})
SHORT: Final[Mapping[str, str]] = {
    "attention-backend": "kernel",
    "enable-chunked-prefill": "chunked",
    "enable-prefix-caching": "prefix",
    "enforce-eager": "eager",
    "gpu-memory-utilization": "mem",
    "kv-cache-dtype": "kv",
    "kv-cache-memory-bytes": "pool",
    "kv-offloading-size": "offload",
    "max-model-len": "len",
    "max-num-batched-tokens": "batched",
    "max-num-seqs": "seqs",
    "pipeline-parallel-size": "pp",
    "speculative-config": "spec",
    "tensor-parallel-size": "tp",
    "data-parallel-size": "dp",
}
"""How a setting is called in the name of an arm; any other by its own name."""
_EXPECTED: Final[Mapping[str, str]] = {
    "kv-cache-dtype": "kv_cache_dtype",
    "kv-cache-dtype-skip-layers": "skip_layers",
    "enable-prefix-caching": "prefix_caching",
    "max-model-len": "max_model_len",
    "attention-backend": "backend",
}
_FIELDS: Final[Mapping[str, str]] = {"tensor-parallel-size": "tensor_parallel", "data-parallel-size": "data_parallel"}
_SPLIT: Final = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")


@cache
def known() -> frozenset[str]:
    """Return the settings that the vLLM of `TRIED` takes; the first line of their list says so too."""
    listed = (resources.files(__package__ or "") / "vllm_settings.txt").read_text(encoding="utf-8")
    return frozenset(line for line in listed.splitlines() if not line.startswith("#"))


def checked(given: Settings, where: str) -> dict[str, object]:
    """Return settings by their names with dashes. Raises UsageError for one that vLLM does not take."""
    found = {}
    for name, value in given.items():
        setting = str(name).removeprefix("--").replace("_", "-")
        if setting in OURS:
            raise UsageError(
                f"{where}: '{name}' is set by the matrix itself", hint="server: {port: 8000} says on which port servers listen"
            )
        if setting not in known() and setting != "args":
            near = get_close_matches(setting, known(), n=2, cutoff=0.6)
            meant = f"did you mean {' or '.join(near)}? " if near else ""
            raise UsageError(
                f"{where}: vLLM has no setting '{name}'", hint=f"{meant}one that is newer than {TRIED} goes into args: [--name, value]"
            )
        if holds_key(words({setting: value})):
            raise UsageError(f"{where}: '{name}' holds a key", hint="servers inherit your environment: export VLLM_API_KEY=…, HF_TOKEN=…")
        if value is None:
            raise UsageError(f"{where}: '{name}' has no value", hint=f"{name}: true for a flag that takes none")
        found[setting] = value
    return found


def words(given: Settings) -> tuple[str, ...]:
    """Return settings as words of a command line."""
    return tuple(word for name, value in given.items() for word in _words(name, value))


def _words(name: str, value: object) -> Sequence[str]:
    if name == "args":
        return tuple(map(str, value)) if isinstance(value, list | tuple) else str(value).split()
    match value:
        case True:
            return (f"--{name}",)
        case False:
            return (f"--no-{name}",)
        case dict():
            return (f"--{name}", json.dumps(value))
        case list() | tuple():
            return (f"--{name}", *map(str, value)) if value else ()
        case _:
            return (f"--{name}", str(value))


def expected(given: Settings) -> dict[str, object]:
    """Return what a server with these settings must say of itself."""
    length = given.get("max-model-len")
    # What vLLM reads, `64k` or `auto`, it says in tokens.
    is_told = type(length) is int and length > 0
    return {fact: given[name] for name, fact in _EXPECTED.items() if name in given and (is_told or fact != "max_model_len")}


def arm_fields(given: Settings) -> dict[str, object]:
    """Return the fields of an arms file that follow from settings."""
    return {field: given[name] for name, field in _FIELDS.items() if name in given}


def gpus(given: Settings) -> int:
    """Return how many GPUs a server is split over."""
    return math.prod(size for name in _SPLIT if isinstance(size := given.get(name), int))


def grid(values: Settings, where: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield each combination of settings with a name that tells it from the others."""
    lists = checked(values, where)
    for name, several in lists.items():
        if not isinstance(several, list | tuple) or not several:
            raise UsageError(f"{where}.{name} must be a list of values", hint=f"{name}: [64, 256]")
    for chosen in itertools.product(*lists.values()):  # type: ignore[call-overload]  # lists, as was just looked at
        made = dict(zip(lists, chosen, strict=True))
        yield "-".join(_named(name, value) for name, value in made.items()), made


def _named(name: str, value: object) -> str:
    short = SHORT.get(name, name.removeprefix("enable-"))
    match value:
        case bool():
            return f"{short}-{'on' if value else 'off'}"
        case dict():
            told = "-".join(str(each) for each in value.values() if isinstance(each, str | int)) or "none"
            return f"{short}-{re.sub(r'[^A-Za-z0-9.]+', '-', told)}"
        case list() | tuple():
            return f"{short}-{'-'.join(map(str, value))}"
        case int() | float():
            return f"{short}{value}"
        case _:
            return f"{short}-{re.sub(r'[^A-Za-z0-9.]+', '-', str(value))}"
