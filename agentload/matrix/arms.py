"""Which configurations fit a model, and the arms file that starts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentload.endpoints.commands import COMMON
from agentload.matrix.described import Config, LeftOut, Model, Server
from agentload.matrix.settings import arm_fields, expected, gpus, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """The configurations of one model, the reference first, and those that are left out."""

    configs: tuple[Config, ...]
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...] = ()


def fitting(
    model: Model, configs: Sequence[Config], *, served: Sequence[str] | None, windows: bool | None, only: str | None = None
) -> Fitting:
    """Say what a model is tried with. *served*: the arms that run already; *windows*: whether the model has sliding-window layers."""
    kept, out, notes = [], [], []
    for config in _wanted(model, configs, served):
        if (why := _misfit(config, model, windows, is_served=served is not None)) is not None:
            out.append(LeftOut(model=model.name, config=config.name, why=why))
            continue
        if config.needs_windows and windows is None and served is None:
            notes.append(
                f"{model.name}: whether it has windows is not known here, so {config.name} is tried (windows: false leaves it out)"
            )
        kept.append(config)
    if only is not None:
        kept = [config for place, config in enumerate(kept) if config.name == only or place == 0]
    return Fitting(configs=tuple(kept), left_out=tuple(out), notes=tuple(notes))


def _wanted(model: Model, configs: Sequence[Config], served: Sequence[str] | None) -> Sequence[Config]:
    """Return what a model asks for, in its own order: its first configuration is the reference."""
    by_name = {config.name: config for config in configs}
    if served is None:
        return [by_name[name] for name in model.configs] if model.configs else configs
    return [by_name.get(name, Config(name=name)) for name in model.configs or served]


def _misfit(config: Config, model: Model, windows: bool | None, *, is_served: bool) -> str | None:  # noqa: FBT001  # a fact, or none
    if config.only and model.name not in config.only:
        return f"for {', '.join(config.only)} only"
    if is_served:
        return None
    if config.needs_windows and windows is False:
        return "the model has no sliding-window layers"
    if config.is_calibrated and model.calibrated is None:
        return "the model names no calibrated checkpoint (agentload calibrate makes one)"
    return None


def arms_document(model: Model, configs: Sequence[Config], server: Server, *, is_folder: Callable[[str], bool]) -> dict[str, object]:
    """Return an arms file that serves *configs* of a model in turn, on one port."""
    assert model.serve is not None, model.name
    served = model.name if is_folder(model.serve) else model.serve
    shared: dict[str, object] = {"model": served, **_hardware(server), **model.fields}
    if is_folder(model.serve):
        shared.setdefault("config", model.serve)
    return {**shared, "arms": {config.name: _arm(config, model, server, served) for config in configs}}


def settings_of(config: Config, model: Model, server: Server) -> dict[str, object]:
    """Return the settings of one server."""
    return {**server.settings, **model.settings, **config.settings}


def _arm(config: Config, model: Model, server: Server, served: str) -> dict[str, object]:
    given = settings_of(config, model, server)
    weights = model.calibrated if config.is_calibrated else model.serve
    told = ("--served-model-name", served) if weights != served else ()
    command = (*server.command, "serve", str(weights), "--port", str(server.port), *told, *words(given), *COMMON)
    launch: dict[str, object] = {"command": list(command)} | ({"env": dict(server.env)} if server.env else {})
    split = {"gpus": count} if server.gpus is None and (count := gpus(given)) > 1 else {}
    entry: dict[str, object] = {"url": f"http://127.0.0.1:{server.port}/v1", **arm_fields(given), **split, "launch": launch}
    return entry | ({"expect": expect} if (expect := expected(given)) else {})


def _hardware(server: Server) -> dict[str, object]:
    said: Mapping[str, object] = {"gpu": server.gpu, "gpus": server.gpus, "price_per_hour": server.price_per_hour}
    return {name: value for name, value in said.items() if value is not None}


def chosen(document: Mapping[str, object], arms: Sequence[str]) -> dict[str, object]:
    """Return an arms file with these arms alone, in this order."""
    entries = document["arms"]
    assert isinstance(entries, Mapping), document
    return {**document, "arms": {name: entries[name] for name in arms}}


def is_folder(name: str) -> bool:
    """Tell whether a model is a folder of this machine."""
    return Path(name).is_dir()
