"""Read a matrix file: YAML to frozen data; every complaint names the place in the file."""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from agentload import documents
from agentload.builtin import find
from agentload.endpoints.endpoint import without_user
from agentload.endpoints.keys import holds_key, keys_in_environment
from agentload.endpoints.read import EMULATED
from agentload.endpoints.values import FIELDS, value_of
from agentload.errors import AgentloadError, UsageError, nearest
from agentload.matrix.arms import check_settings, grid
from agentload.matrix.described import (
    Config,
    Matrix,
    MatrixEntry,
    MatrixModel,
    MatrixServer,
    MatrixWorkload,
    Settings,
)
from agentload.matrix.measure import EXAMPLE_HINT, MIX, measure
from agentload.model.kv import USUAL, WELL_KNOWN, Recipe
from agentload.verdict.policy import parse as parse_policy
from agentload.workloads import catalog


class File(MatrixEntry, frozen=True):
    """Hold a matrix file's keys as typed, before names and settings are checked.

    Unknown keys are refused (`MatrixEntry`).
    """

    models: dict[str, str | MatrixModel]
    workloads: dict[str, str | MatrixWorkload]
    name: str = "matrix"
    configs: list[str] | dict[str, dict[str, Any] | None] | None = None
    grid: Mapping[str, Any] = {}
    measure: Mapping[str, Any] = {}
    server: MatrixServer = MatrixServer()
    policy: Mapping[str, Any] = {}


def _config(
    name: str, recipe: Recipe | None, given: Settings, *, only: tuple[str, ...] = ()
) -> Config:
    """Return a configuration: its recipe, if any, plus its settings."""
    if recipe is None:
        return Config(name=name, settings=given, only=only)
    flags = zip(recipe.flags[::2], recipe.flags[1::2], strict=True)
    return Config(
        name=name,
        settings={**{flag.removeprefix("--"): value for flag, value in flags}, **given},
        only=only,
        needs_windows=recipe.needs_windows,
        is_calibrated=recipe.is_calibrated,
    )


def _recipe(base: object, where: str) -> Recipe:
    """Return the well-known configuration that *base* names."""
    if not isinstance(base, str):
        raise UsageError(f"{where}.base must be the name of one configuration", hint="base: fp8")
    if base not in WELL_KNOWN:
        raise UsageError(
            f"{where}: no well-known configuration '{base}'", hint=nearest(base, WELL_KNOWN)
        )
    return WELL_KNOWN[base]


NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
DEFAULT_CONFIGS: Final = [recipe.arm for recipe in USUAL]


def read_matrix(path: Path) -> Matrix:
    """Read a matrix file. Raises UsageError, which names the wrong key."""
    text = documents.text(
        path,
        raises=UsageError,
        missing=f"agentload matrix --preset mini-lab > {path}",
        hint=EXAMPLE_HINT,
    )
    return parse(text, at=str(path))


def parse(text: str, *, at: str) -> Matrix:
    """Parse the text of a matrix file; errors begin with *at*."""
    document = documents.parse(text, at=at, raises=UsageError)
    try:
        file = msgspec.convert(document, File)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"{at}: {str(error).replace(' - at `$.', ', at `')}", hint=EXAMPLE_HINT
        ) from error
    _check_entries("models", file.models, at)
    _check_entries("workloads", file.workloads, at)
    configs = tuple(_configs(file, at))
    workloads = tuple(
        _workload(name, each, f"{at}: workloads.{name}") for name, each in file.workloads.items()
    )
    models = tuple(
        _model(name, each, f"{at}: models.{name}", configs) for name, each in file.models.items()
    )
    measured = measure(
        file.measure, f"{at}: measure", workloads=tuple(each.name for each in workloads)
    )
    parse_policy(file.policy, at=f"{at}: policy")  # only to refuse a wrong policy now
    return Matrix(
        name=file.name,
        models=models,
        configs=configs,
        workloads=workloads,
        measure=measured,
        server=_server(file.server, at),
        policy=file.policy,
    )


def _check_entries(
    kind: str, entries: Mapping[str, str | MatrixModel | MatrixWorkload], at: str
) -> None:
    if not entries:
        raise UsageError(f"{at}: '{kind}' is empty", hint=EXAMPLE_HINT)
    for name, each in entries.items():
        where = f"{at}: {kind}.{name}"
        _check_name(name, where)
        if not isinstance(each, str) and each.name:
            raise UsageError(f"{where}: Object contains unknown field `name`", hint=EXAMPLE_HINT)


def _configs(file: File, at: str) -> Iterator[Config]:
    named = file.configs
    if named is None:
        named = [] if file.grid else DEFAULT_CONFIGS
    if isinstance(named, list):
        named = dict.fromkeys(named)
    seen: set[str] = set()
    for config in (*_named(named, at), *_grid(file.grid, at)):
        if config.name in seen:
            raise UsageError(
                f"{at}: two configurations are called '{config.name}'",
                hint="rename the one under configs",
            )
        seen.add(config.name)
        yield config


def _named(named: Mapping[str, Mapping[str, Any] | None], at: str) -> Iterator[Config]:
    for name, each in named.items():
        where = f"{at}: configs.{name}"
        _check_name(name, where)
        given = dict(each or {})
        base = given.pop("base", None)
        only = given.pop("only", ())
        recipe = WELL_KNOWN.get(name) if base is None else _recipe(base, where)
        if not given and recipe is None:
            raise UsageError(
                f"{where} has no settings",
                hint=f"{nearest(name, WELL_KNOWN)}; or {name}: {{max-num-seqs: 64}}",
            )
        models = _model_names(only, f"{where}.only")
        yield _config(name, recipe, check_settings(given, where), only=models)


def _grid(given: Mapping[str, Any], at: str) -> Iterator[Config]:
    values = dict(given)
    base = values.pop("base", None)
    where = f"{at}: grid"
    recipe = None if base is None else _recipe(base, where)
    prefix = "" if recipe is None else f"{recipe.arm}-"
    if not values:
        if recipe is not None:
            raise UsageError(f"{where} has no lists of settings", hint="max-num-seqs: [64, 256]")
        return
    for name, chosen in grid(values, where):
        yield _config(f"{prefix}{name}", recipe, chosen)


def _model(
    name: str, given: str | MatrixModel, where: str, configs: tuple[Config, ...]
) -> MatrixModel:
    each = MatrixModel(serve=given) if isinstance(given, str) else given
    if (each.serve is None) == (each.endpoints is None):
        raise UsageError(
            f"{where} needs either 'serve' or 'endpoints'",
            hint="serve: MODEL, or endpoints: arms.yaml or emulated:PROFILE",
        )
    for field, value in each.fields.items():
        # Checked before anything is written into the matrix's folder;
        # a name that is no field is refused when the arms file is read.
        if field in FIELDS:
            value_of(field, value, f"{where}.fields.{field}")
    if each.launch and not (each.endpoints or "").endswith((".yaml", ".yml")):
        raise UsageError(
            f"{where}: 'launch' applies only to an arms file", hint="'serve' is always launched"
        )
    if each.endpoints is not None:
        _check_endpoints(each, each.endpoints, where)
    if each.serve is not None:
        _check_serve(each, each.serve, where, [config.name for config in configs])
    return msgspec.structs.replace(
        each,
        name=name,
        settings=check_settings(each.settings, f"{where}.settings"),
        configs=each.configs and tuple(dict.fromkeys(each.configs)),
    )


def _check_endpoints(each: MatrixModel, endpoints: str, where: str) -> None:
    if each.settings or each.calibrated:
        raise UsageError(
            f"{where}: settings apply only to servers that the matrix starts",
            hint="serve: MODEL in place of endpoints",
        )
    if each.windows is not None:
        raise UsageError(
            f"{where}: 'windows' is for what 'serve' names",
            hint="running arms are compared as they are",
        )
    if each.fields and endpoints.startswith(EMULATED):
        raise UsageError(
            f"{where}: 'fields' are those of an arms file, and emulated servers have none",
            hint="serve: MODEL, or endpoints: URL",
        )
    if without_user(endpoints) != endpoints:
        raise UsageError(
            f"{where}.endpoints holds a password",
            hint="endpoints: arms.yaml, with key_env or header_env in it",
        )


def _check_serve(each: MatrixModel, serve: str, where: str, configs: list[str]) -> None:
    folder = Path(serve)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise UsageError(
            f"{where}: {serve} has no config.json", hint="serve: the folder of the model's files"
        )
    for name in each.configs or ():
        if name not in configs:
            raise UsageError(
                f"{where}: no configuration '{name}'", hint=f"under configs: {', '.join(configs)}"
            )


def _workload(name: str, given: str | MatrixWorkload, where: str) -> MatrixWorkload:
    if name == MIX:
        raise UsageError(
            f"{where}: '{MIX}' means all workloads at once", hint="choose another name"
        )
    each = MatrixWorkload(trace=given) if isinstance(given, str) else given
    if (each.generate is None) == (each.trace is None):
        raise UsageError(
            f"{where} needs either 'generate' or 'trace'",
            hint="generate: rag, or trace: traces/rag.jsonl",
        )
    if each.trace is not None and (each.options or each.scale != 1):
        raise UsageError(
            f"{where}: options and scale belong to a generator",
            hint="{generate: rag, options: {…}}",
        )
    if each.generate is not None:
        try:  # making the trace checks its options now
            catalog.trace(each.generate, seed=each.seed, options=each.options, ctx_scale=each.scale)
        except AgentloadError as error:
            raise UsageError(f"{where}: {error.message}", hint=error.hint) from error
    return msgspec.structs.replace(each, name=name)


def _server(given: MatrixServer, at: str) -> MatrixServer:
    try:
        command = shlex.split(given.command) if isinstance(given.command, str) else given.command
    except ValueError as error:
        raise UsageError(
            f"{at}: server.command cannot be read: {error}",
            hint="command: vllm, or a list of words",
        ) from error
    if not command:
        raise UsageError(f"{at}: server.command is empty", hint="command: vllm")
    if holds_key(command) or any(keys_in_environment(given.env)):
        raise UsageError(
            f"{at}: server holds a key",
            hint="servers inherit your environment: export VLLM_API_KEY=…, HF_TOKEN=…",
        )
    checked = check_settings(given.settings, f"{at}: server.settings")
    return msgspec.structs.replace(given, command=tuple(command), settings=checked)


def _model_names(value: object, where: str) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        raise UsageError(f"{where} must be a list of models", hint="only: [chat]")
    return tuple(found)


def _check_name(name: str, where: str) -> None:
    # The name becomes a folder, the name of a log, a word of a command line.
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{where}: a name starts with a letter or digit and has at most 61 letters, digits, "
            "dots, hyphens or underscores",
            hint="such as llama-8b",
        )


PRESET_MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"
"""The first model of a preset, which --model replaces."""


def preset_text(name: str, *, model: str | None) -> str:
    """Return a shipped matrix, for *model* if given.

    Raises AgentloadError, which lists the presets.
    """
    text = find("presets", name).read_text(encoding="utf-8")
    if model is None:
        return text
    return text.replace(PRESET_MODEL, model)
