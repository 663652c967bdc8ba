"""The kit's data as values: the commands of a phase, the
servers that stand meanwhile, and the shapes of its models.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

HOUSE: Final = Path(__file__).parents[2]
KIT: Final = Path(__file__).with_name("kit.yaml")
PORT: Final = 18_400
LENGTH: Final = 131_072
# No network at run time; /server_info open.
ENV: Final = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_SERVER_DEV_MODE": "1",
}
# What random weights say most often, over and over, would be taken for
# a broken cache: they draw instead, without a seed of each request.
DRAWN: Final = {"temperature": 1.0, "seed": None}
COMMON: Final = {
    "max_position_embeddings": LENGTH,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of a phase."""

    name: str
    command: tuple[str, ...]
    limit_s: float
    """Of its own; what is left of the phase holds as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What is measured in one go."""

    name: str
    limit_s: float
    serves: bool
    """All arms stand side by side while the steps last."""
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a model is measured, with what, and where what comes of it is kept."""

    place: str
    model: str
    folder: Path
    """For what is measured."""
    work: Path
    """For what is made: models, traces, arms files."""
    vllm: str = "vllm"
    gpu: str | None = None


def kit(path: Path = KIT) -> Mapping[str, Any]:
    """Read the kit's data."""
    document: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def values(data: Mapping[str, Any], site: Site, *, programs: Mapping[str, str]) -> dict[str, str]:
    """Return what the words in braces mean at a site; *programs* are agentload and python."""
    place = data["places"][site.place]
    known = {name: str(value) for name, value in place["values"].items()}
    plays = data["models"][site.model]["plays"] if site.place == "gpu" else {}
    # what has a load of its own and is no decision, such as `edge`, takes the chat's
    known |= {name: str(value) for name, value in plays.get("chat", {}).items()}
    known |= {
        "model": site.model,
        "vllm": site.vllm,
        "folder": str(site.folder),
        "start_s": str(place["start_s"]),
    }
    known |= {
        "db": str(database(site)),
        "arms": str(arms_path(site)),
        "steps_trace": str(site.work / f"{site.model}-steps.jsonl"),
    }
    for trace in data["decisions"]:
        known[f"{trace}_load"] = data["load"].format_map({**known, **plays.get(trace, {})})
    return {**known, **programs}


def phase(
    data: Mapping[str, Any],
    name: str,
    known: Mapping[str, str],
    *,
    tries: Mapping[str, int],
    begun: Sequence[str] = (),
    minutes: float | None = None,
) -> Phase:
    """Return a phase with its commands; *tries* were made of
    each step before, and the runs that are *begun* are resumed.
    """
    found = data["phases"][name]
    steps = []
    for step, line in found["steps"].items():
        run, number = line.get("run_id", step), tries.get(step, 0) + 1
        names = {
            "resume": f"--resume {run}" if run in begun else f"--run-id {run}",
            "anew": f"--run-id {run}-{number}",
        }
        filled = [
            word for each in shlex.split(line["run"]) for word in _filled(each, {**known, **names})
        ]
        steps.append(
            Step(
                name=step, command=tuple(filled), limit_s=60 * line.get("minutes", found["minutes"])
            )
        )
    return Phase(
        name=name,
        limit_s=60 * (minutes or found["minutes"]),
        serves=found.get("serve", False),
        steps=tuple(steps),
    )


def _filled(word: str, known: Mapping[str, str]) -> list[str]:
    """Return a word with its values; one that is nothing but a value may be several words."""
    return (
        shlex.split(known[word[1:-1]])
        if word in {"{resume}", "{anew}"} or word.endswith("_load}")
        else [word.format_map(known)]
    )


def arms(data: Mapping[str, Any], site: Site, *, agentload: str) -> dict[str, Any]:
    """Return the arms file of a model at a site: equal but for their KV cache."""
    model, place = data["models"][site.model], data["places"][site.place]
    window = place["values"]["window"]
    entries = {}
    for number, arm in enumerate(model["arms"]):
        port, way = str(PORT + number), data["arms"][arm]
        if site.place == "emulated":
            command = [
                agentload,
                "emulate",
                f"{profile_path(site)}/{arm}",
                "--port",
                port,
                "--speed",
                str(place["speed"]),
            ]
        else:
            memory = "128M" if site.place == "cpu" else f"{model['kv_gib']}G"
            command = [
                site.vllm,
                "serve",
                str(site.work / site.model),
                "--served-model-name",
                f"random-{site.model}",
                "--host",
                "127.0.0.1",
            ]
            command += [
                "--port",
                port,
                "--max-model-len",
                str(window),
                "--kv-cache-memory-bytes",
                memory,
                "--enable-prompt-tokens-details",
            ]
            command += [*place["flags"], *model.get("flags", ()), *way["flags"]]
        entries[arm] = {
            "url": f"http://127.0.0.1:{port}/v1",
            "log": str(site.folder / "logs" / site.model / f"{arm}.log"),
            "expect": {**way["expect"], "prefix_caching": True, "max_model_len": window},
            "launch": {"command": command, "env": ENV},
        }
    hardware = {"cpu": {"gpu": "CPU"}, "gpu": {"gpu": site.gpu} if site.gpu else {}}.get(
        site.place, {}
    )
    named = {} if site.place == "emulated" else {"model": f"random-{site.model}"}
    return {**named, **hardware, "machine": "this one", "extra_body": DRAWN, "arms": entries}


def config(data: Mapping[str, Any], model: str, *, small: bool) -> dict[str, Any]:
    """Return the config.json of a model."""
    own = {**data["models"][model]["config"], **(data["models"][model]["small"] if small else {})}
    pattern = own.pop("pattern", None)
    own = {name: value for name, value in own.items() if value is not None}
    if pattern:
        own["layer_types"] = (pattern * own["num_hidden_layers"])[: own["num_hidden_layers"]]
    defaults = {
        "attention_bias": False,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }
    return {**COMMON, **defaults, **own}


def database(site: Site) -> Path:
    """Return where the runs of a model lie."""
    return site.folder / f"{site.model}.duckdb"


def arms_path(site: Site) -> Path:
    """Return where the arms file of a model lies."""
    return site.work / f"{site.model}-arms.yaml"


def profile_path(site: Site) -> Path:
    """Return where the model's profile lies with the KV memory that the kit gives its arms."""
    return site.work / f"{site.model}-profile.yaml"
