"""Read a matrix file: YAML to frozen data; every complaint names the place in the file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from agentload.endpoints.endpoint import without_user
from agentload.endpoints.keys import holds_key, keys_in_environment
from agentload.endpoints.read import EMULATED, FIELDS, value_of
from agentload.errors import AgentloadError, UsageError
from agentload.matrix import form, known
from agentload.matrix import settings as said
from agentload.matrix.described import Config, Matrix, Model, Server, Workload
from agentload.matrix.measure import MIX, SHOWN, measure
from agentload.model.kv import USUAL
from agentload.report.policy import parse as parse_policy
from agentload.workloads import catalog

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
DEFAULT_CONFIGS: Final = tuple(recipe.arm for recipe in USUAL)


def read_matrix(path: Path) -> Matrix:
    """Read a matrix file. Raises UsageError that names the key that is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", hint=f"agentload matrix --preset mini-lab > {path}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not text", hint=SHOWN) from error
    return parse(text, at=str(path))


def parse(text: str, *, at: str) -> Matrix:
    """Turn the text of a matrix file into a matrix."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{at}: not YAML: {' '.join(str(error).split())}", hint="quote values that hold ':' or '#'") from error
    try:
        file = msgspec.convert(document, form.File)
    except msgspec.ValidationError as error:
        raise UsageError(f"{at}: {str(error).replace(' - at `$.', ', at `')}", hint=SHOWN) from error
    configs = tuple(_configs(file, at))
    workloads = tuple(_workload(name, each, f"{at}: workloads.{name}") for name, each in file.workloads.items())
    models = tuple(_model(name, each, f"{at}: models.{name}", configs) for name, each in file.models.items())
    for kind, found in (("models", models), ("workloads", workloads)):
        if not found:
            raise UsageError(f"{at}: '{kind}' names none", hint=SHOWN)
    measured = measure(file.measure, f"{at}: measure", workloads=tuple(each.name for each in workloads))
    parse_policy(file.policy, at=f"{at}: policy")
    return Matrix(
        name=file.name,
        models=models,
        configs=configs,
        workloads=workloads,
        measure=measured,
        server=_server(file.server, at),
        policy=file.policy,
    )


def _configs(file: form.File, at: str) -> Iterator[Config]:
    listed = file.configs if file.configs is not None else () if file.grid else DEFAULT_CONFIGS
    named: Mapping[str, Mapping[str, Any] | None] = listed if isinstance(listed, dict) else dict.fromkeys(listed)
    seen: set[str] = set()
    for config in (*_named(named, at), *_grid(file.grid, at)):
        if config.name in seen:
            raise UsageError(f"{at}: two configurations are called '{config.name}'", hint="rename the one under configs")
        seen.add(config.name)
        yield config


def _named(named: Mapping[str, Mapping[str, Any] | None], at: str) -> Iterator[Config]:
    for name, each in named.items():
        where = f"{at}: configs.{name}"
        _check_name(name, where)
        given = dict(each or {})
        base, only = given.pop("base", None), given.pop("only", ())
        if not given and base is None and name not in known.WELL_KNOWN:
            near = get_close_matches(name, known.WELL_KNOWN, n=1)
            meant = f"did you mean {near[0]}?" if near else f"well known: {', '.join(known.WELL_KNOWN)}"
            raise UsageError(f"{where} has no settings", hint=f"{meant}; or {name}: {{max-num-seqs: 64}}")
        yield known.config(name, base, said.checked(given, where), only=_texts(only, f"{where}.only"), where=where)


def _grid(given: Mapping[str, Any], at: str) -> Iterator[Config]:
    values = dict(given)
    base = values.pop("base", None)
    if not values:
        return
    for name, chosen in said.grid(values, f"{at}: grid"):
        yield known.config(name if base is None else f"{base}-{name}", base or "", chosen, where=f"{at}: grid")


def _model(name: str, given: str | form.Model, where: str, configs: tuple[Config, ...]) -> Model:
    _check_name(name, where)
    each = form.Model(serve=given) if isinstance(given, str) else given
    if (each.serve is None) == (each.endpoints is None):
        raise UsageError(f"{where} needs either 'serve' or 'endpoints'", hint="serve: MODEL, or endpoints: arms.yaml or emulated:PROFILE")
    if each.endpoints is not None and (each.settings or each.calibrated):
        raise UsageError(f"{where}: settings are for servers that the matrix starts", hint="serve: MODEL in place of endpoints")
    if each.endpoints is not None and each.windows is not None:
        raise UsageError(f"{where}: 'windows' is for what 'serve' names", hint="arms that run already are compared as they are")
    if each.fields and (each.endpoints or "").startswith(EMULATED):
        raise UsageError(
            f"{where}: 'fields' are those of an arms file, and emulated servers have none", hint="serve: MODEL, or endpoints: URL"
        )
    if each.endpoints is not None and without_user(each.endpoints) != each.endpoints:
        raise UsageError(f"{where}.endpoints holds a password", hint="endpoints: arms.yaml, with key_env or header_env in it")
    for field, value in each.fields.items():
        if field in FIELDS:  # before it is written into the matrix's folder
            value_of(field, value, f"{where}.fields.{field}")
    if each.launch and not (each.endpoints or "").endswith((".yaml", ".yml")):
        raise UsageError(f"{where}: 'launch' is for the servers of an arms file", hint="what 'serve' names is started anyway")
    if each.serve is not None and Path(each.serve).is_dir() and not (Path(each.serve) / "config.json").is_file():
        raise UsageError(f"{where}: {each.serve} has no config.json", hint="serve: the folder that holds the model's files")
    names = [config.name for config in configs]
    if each.serve is not None and (unknown := [config for config in each.configs or () if config not in names]):
        raise UsageError(f"{where}: no configuration '{unknown[0]}'", hint=f"under configs: {', '.join(names)}")
    return Model(
        name=name,
        serve=each.serve,
        endpoints=each.endpoints,
        launch=each.launch,
        settings=said.checked(each.settings, f"{where}.settings"),
        calibrated=each.calibrated,
        windows=each.windows,
        configs=tuple(dict.fromkeys(each.configs or ())),
        fields=each.fields,
    )


def _workload(name: str, given: str | form.Workload, where: str) -> Workload:
    _check_name(name, where)
    if name == MIX:
        raise UsageError(f"{where}: '{MIX}' stands for all workloads at once", hint="another name")
    each = form.Workload(trace=given) if isinstance(given, str) else given
    if (each.generate is None) == (each.trace is None):
        raise UsageError(f"{where} needs either 'generate' or 'trace'", hint="generate: rag, or trace: traces/rag.jsonl")
    if each.trace is not None and (each.options or each.scale != 1):
        raise UsageError(f"{where}: options and scale are those of a generator", hint=f"{{generate: {name}, options: {{…}}}}")
    if each.generate is not None:
        try:  # says at once what its options are
            catalog.trace(each.generate, seed=each.seed, options=each.options, ctx_scale=each.scale)
        except AgentloadError as error:
            raise UsageError(f"{where}: {error.message}", hint=error.hint) from error
    return Workload(name=name, generate=each.generate, trace=each.trace, options=each.options, scale=each.scale, seed=each.seed)


def _server(given: form.Server, at: str) -> Server:
    try:
        command = shlex.split(given.command) if isinstance(given.command, str) else given.command
    except ValueError as error:
        raise UsageError(f"{at}: server.command cannot be read: {error}", hint="command: vllm, or a list of words") from error
    if not command:
        raise UsageError(f"{at}: server.command is empty", hint="command: vllm")
    if holds_key(command) or any(keys_in_environment(given.env)):
        raise UsageError(f"{at}: server holds a key", hint="servers inherit your environment: export VLLM_API_KEY=…, HF_TOKEN=…")
    checked = said.checked(given.settings, f"{at}: server.settings")
    return Server(**msgspec.structs.asdict(given) | {"command": tuple(command), "settings": checked})


def _texts(value: object, where: str) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        raise UsageError(f"{where} must be a list of models", hint="only: [chat]")
    return tuple(found)


def _check_name(name: str, where: str) -> None:
    # It becomes a folder, the name of a log, a word of a command line.
    if not NAME.fullmatch(name):
        raise UsageError(f"{where}: a name has letters, digits, dots, hyphens and underscores", hint="such as llama-8b")
