"""Split a matrix into the selected models: their configurations, steps and estimates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import msgspec
import yaml

from agentload import documents
from agentload.endpoints.commands import config_file, has_windows
from agentload.endpoints.read import EMULATED, Emulated, arms_file, is_arms_file, read
from agentload.errors import ProfileError, UsageError
from agentload.matrix.arms import arms_document, subset
from agentload.matrix.described import Config, LeftOut, Matrix, MatrixFolder, MatrixModel, trace_of
from agentload.matrix.steps import ModelPart
from agentload.model.trace import Trace
from agentload.run.servers import arms_of
from agentload.tracefile import write


def traces_of(matrix: Matrix) -> dict[str, Trace]:
    """Return the trace of each workload. Raises UsageError for an empty one."""
    found = {each.name: trace_of(each) for each in matrix.workloads}
    for name, trace in found.items():
        if next(iter(trace.sessions), None) is None:
            raise UsageError(
                f"workload '{name}' has no sessions", hint="agentload trace check FILE"
            )
    return found


def parts(
    matrix: Matrix, places: MatrixFolder, traces: Mapping[str, Trace], *, only: str | None = None
) -> tuple[ModelPart, ...]:
    """Return each model's part; *only* is MODEL, or MODEL/CONFIG to compare with the reference.

    Raises UsageError if nothing fits.
    """
    wanted, _, config = (only or "").partition("/")
    models = [model for model in matrix.models if not wanted or model.name == wanted]
    if not models:
        raise UsageError(
            f"--only: no model '{wanted}'",
            hint=f"one of: {', '.join(each.name for each in matrix.models)}",
        )
    return tuple(_of_model(matrix, model, places, traces, only=config or None) for model in models)


def _of_model(
    matrix: Matrix,
    model: MatrixModel,
    places: MatrixFolder,
    traces: Mapping[str, Trace],
    *,
    only: str | None,
) -> ModelPart:
    served = _served(model)
    choice = _choice(matrix, model, served)
    names = choice.names(only)
    if only is not None and only not in names:
        raise UsageError(
            f"--only: {model.name} is not tried with '{only}'", hint=f"one of: {', '.join(names)}"
        )
    if served is not None:
        _check_served(model, names, served)
    if not names:
        why = "; ".join(f"{each.config}: {each.why}" for each in choice.left_out)
        raise UsageError(f"{model.name}: no configuration fits", hint=why)
    workloads = tuple(each for each in matrix.workloads if not each.only or model.name in each.only)
    if not workloads:
        raise UsageError(
            f"{model.name}: no workload is for it",
            hint=f"only: [{model.name}] under one of workloads",
        )
    # A subset is a different comparison and gets its own folder.
    named = model if only is None else msgspec.structs.replace(model, name=f"{model.name}.{only}")
    return ModelPart(
        matrix=replace(matrix, workloads=workloads),
        model=named,
        places=places,
        traces=traces,
        wanted=names,
        arms=names,
        tokenizer=_tokenizer(model),
        notes=tuple(choice.notes),
        left_out=tuple(choice.left_out),
    )


@dataclass(slots=True, kw_only=True)
class _Choice:
    """Hold which configurations fit a model, and why others do not."""

    fitting: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def names(self, only: str | None) -> tuple[str, ...]:
        """Return the arms: all that fit, or the reference and *only* one."""
        if only is None:
            return tuple(self.fitting)
        wanted = {*self.fitting[:1], only}
        return tuple(name for name in self.fitting if name in wanted)


def _choice(matrix: Matrix, model: MatrixModel, served: Sequence[str] | None) -> _Choice:
    """Choose the configurations that a model is tried with."""
    made = _Choice()
    windows = _windows(model)
    is_served = served is not None
    for config in _wanted(model, matrix.configs, served):
        why = _misfit(config, model, windows=windows, is_served=is_served)
        if why is not None:
            made.left_out.append(LeftOut(model=model.name, config=config.name, why=why))
            continue
        if config.needs_windows and windows is None and not is_served:
            made.notes.append(
                f"{model.name}: sliding windows unknown, so {config.name} is tried "
                "(windows: false leaves it out)"
            )
        made.fitting.append(config.name)
    return made


def _windows(model: MatrixModel) -> bool | None:
    """Return whether a model has sliding-window layers; None if unknown."""
    if model.windows is not None or model.serve is None:
        return model.windows
    return has_windows(model.serve)


def _wanted(
    model: MatrixModel, configs: Sequence[Config], served: Sequence[str] | None
) -> Sequence[Config]:
    """Return the model's configurations in its own order; the first is the reference."""
    by_name = {config.name: config for config in configs}
    if served is None:
        if model.configs:
            return [by_name[name] for name in model.configs]
        return configs
    return [by_name.get(name, Config(name=name)) for name in model.configs or served]


def _misfit(
    config: Config, model: MatrixModel, *, windows: bool | None, is_served: bool
) -> str | None:
    """Say why a configuration does not fit a model; *windows* is None where unknown."""
    if config.only and model.name not in config.only:
        return f"for {', '.join(config.only)} only"
    if is_served:
        return None
    if config.needs_windows and windows is False:
        return "the model has no sliding-window layers"
    if config.is_calibrated and model.calibrated is None:
        return "the model names no calibrated checkpoint (agentload calibrate makes one)"
    return None


def _check_served(model: MatrixModel, names: Sequence[str], served: Sequence[str]) -> None:
    unknown = next((name for name in model.configs or () if name not in served), None)
    if unknown is not None:
        raise UsageError(
            f"{model.name}: no arm '{unknown}' in its endpoints",
            hint=f"they have: {', '.join(served)}",
        )
    theirs = [name for name in served if name in names]
    if (model.endpoints or "").startswith(EMULATED) and theirs != list(names):
        raise UsageError(
            f"{model.name}: emulated arms must keep their profile's order",
            hint=f"configs: [{', '.join(theirs)}]",
        )


def _served(model: MatrixModel) -> tuple[str, ...] | None:
    """Return the arms that already run; None if the matrix starts them."""
    if model.endpoints is None:
        return None
    found = read(model.endpoints)
    if isinstance(found, Emulated):
        return tuple(arm.name for arm in arms_of(found.profile, found.arms))
    return tuple(arm.name for arm in found)


def _tokenizer(model: MatrixModel) -> str | None:
    if model.serve is None or find_spec("tokenizers") is None:
        return None
    try:
        beside = config_file(model.serve).with_name("tokenizer.json")
    except ProfileError:
        return None
    return str(beside) if beside.is_file() else None


def document(part: ModelPart) -> dict[str, object]:
    """Return a model's arms file; emulated models have none."""
    model, matrix = part.model, part.matrix
    if model.serve is not None:
        by_name = {config.name: config for config in matrix.configs}
        configs = [by_name[name] for name in part.arms]
        return arms_document(model, configs, matrix.server)
    given = model.endpoints or ""
    if is_arms_file(given):
        return subset({**documents.read(arms_file(given)), **model.fields}, part.arms)
    found = read(given)
    assert isinstance(found, tuple), given
    return subset(
        {**model.fields, "arms": {each.name: {"url": each.url} for each in found}}, part.arms
    )


def lay_out(matrix: Matrix, places: MatrixFolder, traces: Mapping[str, Trace]) -> None:
    """Write the files that all models share."""
    for name, trace in traces.items():
        places.trace(name).parent.mkdir(parents=True, exist_ok=True)
        write(places.trace(name), trace)
    if matrix.policy:
        _write(places.policy, matrix.policy)


def write_arms(part: ModelPart, *, keeps_others: bool) -> None:
    """Write a model's arms file; keep other arms of an earlier file if it *keeps_others*.

    Emulated servers have none.
    """
    if part.is_emulated or not part.arms:
        return
    whole = document(part)
    path = part.places.endpoints(part.name)
    before = documents.read(path)["arms"] if keeps_others and path.exists() else {}
    own = cast(Mapping[str, object], whole["arms"])
    others = {arm: entry for arm, entry in before.items() if arm not in own}
    _write(path, {**whole, "arms": {**own, **others}})


def _write(path: Path, content: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False, width=1000), encoding="utf-8")
