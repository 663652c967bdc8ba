"""Which configurations fit a model, and the arms file that starts them."""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from agentload.endpoints.arguments import holds_key, words_of
from agentload.endpoints.commands import COMMON
from agentload.errors import UsageError
from agentload.kvmath.pool import TRIED
from agentload.matrix.described import Config, LeftOut, Model, Server, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """The configurations of one model, the reference first, and those that are left out."""

    configs: tuple[Config, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...] = ()


def fit(
    model: Model,
    configs: Sequence[Config],
    *,
    served: Sequence[str] | None,
    windows: bool | None,
    only: str | None = None,
) -> Fitting:
    """Choose a model's configurations. *served*: arms that already
    run; *windows*: whether the model has sliding-window layers.
    """
    kept, out, notes = [], [], []
    for config in _wanted(model, configs, served):
        if (why := _misfit(config, model, windows, is_served=served is not None)) is not None:
            out.append(LeftOut(model=model.name, config=config.name, why=why))
            continue
        if config.needs_windows and windows is None and served is None:
            notes.append(
                f"{model.name}: sliding windows unknown, so {config.name} is tried "
                "(windows: false leaves it out)"
            )
        kept.append(config)
    if only is not None:
        kept = [config for place, config in enumerate(kept) if config.name == only or place == 0]
    return Fitting(configs=tuple(kept), left_out=tuple(out), notes=tuple(notes))


def _wanted(
    model: Model, configs: Sequence[Config], served: Sequence[str] | None
) -> Sequence[Config]:
    """Return the model's configurations in its own order; the first is the reference."""
    by_name = {config.name: config for config in configs}
    if served is None:
        return [by_name[name] for name in model.configs] if model.configs else configs
    return [by_name.get(name, Config(name=name)) for name in model.configs or served]


# a fact, or none
def _misfit(config: Config, model: Model, windows: bool | None, *, is_served: bool) -> str | None:  # noqa: FBT001
    if config.only and model.name not in config.only:
        return f"for {', '.join(config.only)} only"
    if is_served:
        return None
    if config.needs_windows and windows is False:
        return "the model has no sliding-window layers"
    if config.is_calibrated and model.calibrated is None:
        return "the model names no calibrated checkpoint (agentload calibrate makes one)"
    return None


def arms_document(
    model: Model, configs: Sequence[Config], server: Server, *, is_folder: Callable[[str], bool]
) -> dict[str, object]:
    """Return an arms file that serves *configs* in turn, on one port."""
    assert model.serve is not None, model.name
    served = model.name if is_folder(model.serve) else model.serve
    shared: dict[str, object] = {"model": served, **_hardware(server), **model.fields}
    if is_folder(model.serve):
        shared.setdefault("config", model.serve)
    return {
        **shared,
        "arms": {config.name: _arm(config, model, server, served) for config in configs},
    }


def settings_of(config: Config, model: Model, server: Server) -> dict[str, object]:
    """Return the settings of one server."""
    return {**server.settings, **model.settings, **config.settings}


def _arm(config: Config, model: Model, server: Server, served: str) -> dict[str, object]:
    given = settings_of(config, model, server)
    weights = model.calibrated if config.is_calibrated else model.serve
    told = ("--served-model-name", served) if weights != served else ()
    command = (
        *server.command,
        "serve",
        str(weights),
        "--port",
        str(server.port),
        *told,
        *words(given),
        *COMMON,
    )
    launch: dict[str, object] = {"command": list(command)} | (
        {"env": dict(server.env)} if server.env else {}
    )
    split = {"gpus": count} if server.gpus is None and (count := gpus(given)) > 1 else {}
    entry: dict[str, object] = {
        "url": f"http://127.0.0.1:{server.port}/v1",
        **arm_fields(given),
        **split,
        "launch": launch,
    }
    return entry | ({"expect": expect} if (expect := expectations(given)) else {})


def _hardware(server: Server) -> dict[str, object]:
    said: Mapping[str, object] = {
        "gpu": server.gpu,
        "gpus": server.gpus,
        "price_per_hour": server.price_per_hour,
    }
    return {name: value for name, value in said.items() if value is not None}


def subset(document: Mapping[str, object], arms: Sequence[str]) -> dict[str, object]:
    """Return the arms file reduced to these arms, in this order."""
    entries = document["arms"]
    assert isinstance(entries, Mapping), document
    return {**document, "arms": {name: entries[name] for name in arms}}


def is_folder(name: str) -> bool:
    """Return whether a model is a local folder."""
    return Path(name).is_dir()


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


def check(given: Settings, where: str) -> dict[str, object]:
    """Return settings by their dashed names. Raises UsageError for one that vLLM does not have."""
    found = {}
    for name, value in given.items():
        setting = str(name).removeprefix("--").replace("_", "-")
        if setting in OURS:
            raise UsageError(
                f"{where}: '{name}' is set by the matrix",
                hint="server: {port: 8000} sets the port of the servers",
            )
        if setting not in known_settings() and setting != "args":
            near = get_close_matches(setting, known_settings(), n=2, cutoff=0.6)
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
        return tuple(map(str, value)) if isinstance(value, list | tuple) else str(value).split()
    flag = f"--no-{name}" if value is False else f"--{name}"
    return () if value in ([], ()) else (flag, *words_of(value))


def expectations(given: Settings) -> dict[str, object]:
    """Return what a server with these settings must report."""
    length = given.get("max-model-len")
    # What vLLM reads, `64k` or `auto`, it says in tokens.
    is_told = type(length) is int and length > 0
    return {
        fact: given[name]
        for name, fact in _EXPECTED.items()
        if name in given and (is_told or fact != "max_model_len")
    }


def arm_fields(given: Settings) -> dict[str, object]:
    """Return the fields of an arms file that follow from settings."""
    return {field: given[name] for name, field in _FIELDS.items() if name in given}


def gpus(given: Settings) -> int:
    """Return how many GPUs a server spans."""
    return math.prod(size for name in _SPLIT if isinstance(size := given.get(name), int))


def grid(values: Settings, where: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield each combination of settings with its name."""
    lists = check(values, where)
    for name, several in lists.items():
        if not isinstance(several, list | tuple) or not several:
            raise UsageError(f"{where}.{name} must be a list of values", hint=f"{name}: [64, 256]")
    # lists, as was just looked at
    for chosen in itertools.product(*lists.values()):  # type: ignore[call-overload]
        made = dict(zip(lists, chosen, strict=True))
        yield "-".join(_named(name, value) for name, value in made.items()), made


def _named(name: str, value: object) -> str:
    short = SHORT.get(name, name.removeprefix("enable-"))
    match value:
        case bool():
            return f"{short}-{'on' if value else 'off'}"
        case dict():
            told = (
                "-".join(str(each) for each in value.values() if isinstance(each, str | int))
                or "none"
            )
            return f"{short}-{re.sub(r'[^A-Za-z0-9.]+', '-', told)}"
        case list() | tuple():
            return f"{short}-{'-'.join(map(str, value))}"
        case int() | float():
            return f"{short}{value}"
        case _:
            return f"{short}-{re.sub(r'[^A-Za-z0-9.]+', '-', str(value))}"
