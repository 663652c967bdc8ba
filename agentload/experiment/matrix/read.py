"""Read a matrix file: YAML to frozen data; every complaint names the place in the file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

from agentload.errors import AgentloadError, UsageError
from agentload.experiment.matrix import known
from agentload.experiment.matrix import settings as said
from agentload.experiment.matrix.parts import Accuracy, Concurrency, Config, Contexts, Matrix, Measure, Model, Server, Workload
from agentload.report.policy import parse as parse_policy
from agentload.workloads import catalog

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
SHOWN: Final = "agentload matrix --preset mini-lab prints a whole one"
DEFAULT_CONFIGS: Final = ("bf16", "fp8", "fp8-skip-sw")


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
        file = msgspec.convert(document, _File)
    except msgspec.ValidationError as error:
        raise UsageError(f"{at}: {str(error).replace(' - at `$.', ', at `')}", hint=SHOWN) from error
    configs = tuple(_configs(file, at))
    workloads = tuple(_workload(name, each, f"{at}: workloads.{name}") for name, each in file.workloads.items())
    models = tuple(_model(name, each, f"{at}: models.{name}", configs) for name, each in file.models.items())
    for kind, found in (("models", models), ("workloads", workloads)):
        if not found:
            raise UsageError(f"{at}: '{kind}' names none", hint=SHOWN)
    measure = _measure(file.measure, at, workloads)
    parse_policy(file.policy, at=f"{at}: policy")
    return Matrix(
        name=file.name,
        models=models,
        configs=configs,
        workloads=workloads,
        measure=measure,
        server=_server(file.server, at),
        policy=file.policy,
    )


class _Strict(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    pass


class _Snake(msgspec.Struct, forbid_unknown_fields=True):
    pass


class _Model(_Snake):
    serve: str | None = None
    endpoints: str | None = None
    launch: bool = False
    settings: dict[str, Any] = {}  # msgspec copies a default
    calibrated: str | None = None
    windows: bool | None = None
    configs: list[str] | None = None
    fields: dict[str, Any] = {}


class _Workload(_Snake):
    generate: str | None = None
    trace: str | None = None
    options: dict[str, Any] = {}
    scale: float = 1.0
    seed: int = 7


class _Contexts(_Snake):
    lengths: str
    pairs: int = 3
    output: int = 128


class _Concurrency(_Snake):
    seconds: float = 60.0
    start: int = 4
    slo: str | None = None
    workloads: list[str] = []


class _Accuracy(_Snake):
    tasks: list[str] = []
    contexts: str = "4k..32k"
    items: int | None = None
    depths: int = 10
    concurrency: int = 8
    thinking: int = 0


class _Measure(_Snake):
    pairs: int = 6
    restarts: int | None = 3
    sessions: int | None = 8
    waits: dict[Literal["user", "tool", "schedule"], float] = {}
    duration_s: float | None = None
    max_calls: int | None = None
    aa: bool = False
    seed: int = 0
    noise: bool = True
    contexts: _Contexts | str | None = None
    concurrency: _Concurrency | None = None
    accuracy: _Accuracy | None = None
    isolation: bool = False


class _Server(_Snake):
    command: str | list[str] = "vllm"
    port: int = 8000
    env: dict[str, str] = {}
    settings: dict[str, Any] = {}
    start_minutes: float = 2.0
    start_timeout_s: float = 1800.0
    gpu: str | None = None
    gpus: int | None = None
    price_per_hour: float | None = None


class _File(_Snake):
    models: dict[str, str | _Model]
    workloads: dict[str, str | _Workload]
    name: str = "matrix"
    configs: list[str] | dict[str, dict[str, Any] | None] | None = None
    grid: dict[str, Any] = {}
    measure: _Measure = msgspec.field(default_factory=_Measure)
    server: _Server = msgspec.field(default_factory=_Server)
    policy: dict[str, Any] = {}


def _configs(file: _File, at: str) -> Iterator[Config]:
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


def _model(name: str, given: str | _Model, where: str, configs: tuple[Config, ...]) -> Model:
    _check_name(name, where)
    each = _Model(serve=given) if isinstance(given, str) else given
    if (each.serve is None) == (each.endpoints is None):
        raise UsageError(f"{where} needs either 'serve' or 'endpoints'", hint="serve: MODEL, or endpoints: arms.yaml or emulated:PROFILE")
    if each.endpoints is not None and (each.settings or each.calibrated):
        raise UsageError(f"{where}: settings are for servers that the matrix starts", hint="serve: MODEL in place of endpoints")
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
        configs=tuple(each.configs or ()),
        fields=each.fields,
    )


def _workload(name: str, given: str | _Workload, where: str) -> Workload:
    _check_name(name, where)
    each = _Workload(trace=given) if isinstance(given, str) else given
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


def _measure(given: _Measure, at: str, workloads: tuple[Workload, ...]) -> Measure:
    wrong = {
        "pairs must be >= 1": given.pairs < 1,
        "restarts must be >= 1": given.restarts is not None and given.restarts < 1,
        "sessions must be >= 1": given.sessions is not None and given.sessions < 1,
        "waits must not be negative": any(value < 0 for value in given.waits.values()),
    }
    if found := next((text for text, is_wrong in wrong.items() if is_wrong), None):
        raise UsageError(f"{at}: measure: {found}", hint=SHOWN)
    searched, names = given.concurrency, (*(each.name for each in workloads), "mix")
    if searched is not None and (unknown := [name for name in searched.workloads if name not in names]):
        raise UsageError(f"{at}: measure.concurrency: no workload '{unknown[0]}'", hint=f"any of: {', '.join(names)}")
    contexts = _Contexts(lengths=given.contexts) if isinstance(given.contexts, str) else given.contexts
    return Measure(
        pairs=given.pairs,
        restarts=None if given.restarts is None else min(given.restarts, given.pairs),
        sessions=given.sessions,
        waits={str(kind): seconds for kind, seconds in given.waits.items()},
        duration_s=given.duration_s,
        max_calls=given.max_calls,
        aa=given.aa,
        seed=given.seed,
        noise=given.noise,
        contexts=None if contexts is None else Contexts(**msgspec.structs.asdict(contexts)),
        concurrency=None
        if searched is None
        else Concurrency(**msgspec.structs.asdict(searched) | {"workloads": tuple(searched.workloads)}),
        accuracy=None
        if given.accuracy is None
        else Accuracy(**msgspec.structs.asdict(given.accuracy) | {"tasks": tuple(given.accuracy.tasks)}),
        isolation=given.isolation,
    )


def _server(given: _Server, at: str) -> Server:
    command = shlex.split(given.command) if isinstance(given.command, str) else given.command
    if not command:
        raise UsageError(f"{at}: server.command is empty", hint="command: vllm")
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
