"""Check the settings of servers, and build the arms file that starts a configuration."""

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from agentload.endpoints.arguments import words_of
from agentload.endpoints.commands import COMMON
from agentload.endpoints.keys import holds_key
from agentload.errors import UsageError
from agentload.kvmath.pool import TRIED
from agentload.matrix.described import Config, MatrixModel, MatrixServer, Settings


def arms_document(
    model: MatrixModel, configs: Sequence[Config], server: MatrixServer
) -> dict[str, object]:
    """Return an arms file that serves *configs* in turn, on one port."""
    assert model.serve is not None, model.name
    is_folder = Path(model.serve).is_dir()
    served = model.name if is_folder else model.serve
    document: dict[str, object] = {"model": served, **_hardware(server), **model.fields}
    if is_folder:
        document.setdefault("config", model.serve)
    document["arms"] = {config.name: _arm(config, model, server, served) for config in configs}
    return document


def settings_of(config: Config, model: MatrixModel, server: MatrixServer) -> dict[str, object]:
    """Return the settings of one server."""
    return {**server.settings, **model.settings, **config.settings}


def _arm(
    config: Config, model: MatrixModel, server: MatrixServer, served: str
) -> dict[str, object]:
    given = settings_of(config, model, server)
    weights = str(model.calibrated if config.is_calibrated else model.serve)
    told = ["--served-model-name", served] if weights != served else []
    command = [*server.command, "serve", weights, "--port", str(server.port), *told]
    entry: dict[str, object] = {
        "url": f"http://127.0.0.1:{server.port}/v1",
        **{field: given[name] for name, field in _FIELDS.items() if name in given},
    }
    if server.gpus is None and gpus(given) > 1:
        entry["gpus"] = gpus(given)
    launch: dict[str, object] = {"command": [*command, *words(given), *COMMON]}
    if server.env:
        launch["env"] = dict(server.env)
    entry["launch"] = launch
    expected = expectations(given)
    if expected:
        entry["expect"] = expected
    return entry


def _hardware(server: MatrixServer) -> dict[str, object]:
    said = {"gpu": server.gpu, "gpus": server.gpus, "price_per_hour": server.price_per_hour}
    return {name: value for name, value in said.items() if value is not None}


def subset(document: Mapping[str, object], arms: Sequence[str]) -> dict[str, object]:
    """Return the arms file reduced to these arms, in this order."""
    entries = document["arms"]
    assert isinstance(entries, Mapping), document
    return {**document, "arms": {name: entries[name] for name in arms}}


_MOVED: Final[Mapping[str, tuple[str, ...]]] = {"rope-scaling": ("hf-overrides",)}
"""Settings that vLLM has dropped, and what took their place."""
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
"""Short names of settings in arm names; other settings keep their own."""
_EXPECTED: Final[Mapping[str, str]] = {
    "kv-cache-dtype": "kv_cache_dtype",
    "kv-cache-dtype-skip-layers": "skip_layers",
    "enable-prefix-caching": "prefix_caching",
    "max-model-len": "max_model_len",
    "attention-backend": "backend",
}
_FIELDS: Final[Mapping[str, str]] = {
    "tensor-parallel-size": "tensor_parallel",
    "data-parallel-size": "data_parallel",
}
_SPLIT: Final = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")


@cache
def known_settings() -> frozenset[str]:
    """Return the settings of vLLM `TRIED`, the version named in the first line of the list."""
    listed = (resources.files(__package__ or "") / "vllm_settings.txt").read_text(encoding="utf-8")
    return frozenset(line for line in listed.splitlines() if not line.startswith("#"))


def check_settings(given: Settings, where: str) -> dict[str, object]:
    """Return settings by their dashed names; raise UsageError for one that vLLM lacks."""
    found = {}
    for name, value in given.items():
        setting = str(name).removeprefix("--").replace("_", "-")
        if setting in OURS:
            raise UsageError(
                f"{where}: '{name}' is set by the matrix",
                hint="server: {port: 8000} sets the port of the servers",
            )
        if setting not in known_settings() and setting != "args":
            near = _MOVED.get(setting) or get_close_matches(
                setting, known_settings(), n=2, cutoff=0.6
            )
            meant = f"did you mean {' or '.join(near)}? " if near else ""
            raise UsageError(
                f"{where}: vLLM has no setting '{name}'",
                hint=f"{meant}put settings newer than {TRIED} into args: [--name, value]",
            )
        if holds_key(words({setting: value})):
            raise UsageError(
                f"{where}: '{name}' holds a key",
                hint="servers inherit your environment: export VLLM_API_KEY=…, HF_TOKEN=…",
            )
        if value is None:
            raise UsageError(
                f"{where}: '{name}' has no value", hint=f"{name}: true for a flag that takes none"
            )
        found[setting] = value
    return found


def words(given: Settings) -> tuple[str, ...]:
    """Return settings as command-line words."""
    return tuple(word for name, value in given.items() for word in _words(name, value))


def _words(name: str, value: object) -> Sequence[str]:
    if name == "args":
        if isinstance(value, list | tuple):
            return tuple(map(str, value))
        return str(value).split()
    flag = f"--no-{name}" if value is False else f"--{name}"
    if value in ([], ()):
        return ()
    return (flag, *words_of(value))


def expectations(given: Settings) -> dict[str, object]:
    """Return what a server with these settings must report."""
    expected = {fact: given[name] for name, fact in _EXPECTED.items() if name in given}
    length = given.get("max-model-len")
    # vLLM reads `64k` or `auto` too, but reports tokens: only a number can be expected.
    if type(length) is not int or length <= 0:
        expected.pop("max_model_len", None)
    return expected


def gpus(given: Settings) -> int:
    """Return how many GPUs a server spans."""
    sizes = [given.get(name) for name in _SPLIT]
    return math.prod(size for size in sizes if isinstance(size, int))


def grid(values: Settings, where: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield each combination of settings with its name."""
    lists = check_settings(values, where)
    for name, several in lists.items():
        if not isinstance(several, list | tuple) or not several:
            raise UsageError(f"{where}.{name} must be a list of values", hint=f"{name}: [64, 256]")
    # all values are lists, as was checked above
    for chosen in itertools.product(*lists.values()):  # type: ignore[call-overload]
        made = dict(zip(lists, chosen, strict=True))
        yield "-".join(_named(name, value) for name, value in made.items()), made


def _named(name: str, value: object) -> str:
    short = SHORT.get(name, name.removeprefix("enable-"))
    match value:
        case bool():
            text = "on" if value else "off"
        case dict():
            plain = [str(each) for each in value.values() if isinstance(each, str | int)]
            text = "-".join(plain) or "none"
        case list() | tuple():
            return f"{short}-{'-'.join(map(str, value))}"
        case int() | float():
            return f"{short}{value}"
        case _:
            text = str(value)
    return f"{short}-{re.sub(r'[^A-Za-z0-9.]+', '-', text)}"
