"""Find workloads by file name, read their options from their signatures, and make traces with them."""

import hashlib
import inspect
import pkgutil
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, Final

import msgspec

from agentload.errors import UsageError
from agentload.model.trace import Header, Segment, Session, Trace
from agentload.workloads.parts.scale import scaled_segment, scaled_session
from agentload.workloads.parts.target import Range, Target

_ARRIVALS: Final = frozenset({"sessions", "rate_per_s", "cv", "peak"})
_NO_WORKLOADS: Final = frozenset({"catalog", "shipped"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One keyword of a workload's generator."""

    name: str
    type: Any
    default: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A generator, its options and what it says of itself."""

    name: str
    help: str
    options: tuple[Option, ...]
    prefixes: Mapping[str, tuple[Segment, ...]]
    targets: Mapping[str, Target | Range]
    """What its lengths and waits were measured to be, by the names of `tracefile.fields`."""
    variants: tuple[Mapping[str, object], ...]
    """Options under which all of the targets show."""
    generate: Callable[..., Iterator[Session]]


def names() -> tuple[str, ...]:
    """List the workloads, sorted."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return tuple(sorted(module.name for module in modules if not module.ispkg and module.name not in _NO_WORKLOADS))


def workload(name: str) -> Workload:
    """Return the workload of that name; raise `UsageError` naming the nearest if there is none."""
    if name not in names():
        raise UsageError(f"no workload '{name}'", hint=_nearest(name, names()))
    module = import_module(f"agentload.workloads.{name}")
    return Workload(
        name=name,
        help=inspect.cleandoc(module.__doc__ or ""),
        options=_options(module),
        prefixes=module.PREFIXES,
        targets=module.TARGETS,
        variants=getattr(module, "VARIANTS", ({},)),
        generate=module.generate,
    )


def trace(name: str, *, seed: int, options: Mapping[str, object] | None = None, ctx_scale: float = 1.0) -> Trace:
    """Return the trace of a workload; its sessions are made anew, and equal, in each iteration.

    Options may be text, as typed by a user; `ctx_scale` multiplies every length, for models with small windows.
    """
    made = workload(name)
    given = _checked(made, options or {})
    if not 0 < ctx_scale <= 100:
        raise UsageError(f"ctx_scale must lie in (0, 100], got {ctx_scale:g}")
    made.generate(seeded(seed, name), **given)  # says at once what the options do together
    said = {"workload": name, "options": given} | ({"ctx_scale": ctx_scale} if ctx_scale != 1 else {})
    return Trace(
        header=Header(
            name=name,
            seed=seed,
            prefixes={key: tuple(scaled_segment(part, ctx_scale) for part in parts) for key, parts in made.prefixes.items()},
            source=tuple((key, msgspec.json.encode(value).decode()) for key, value in said.items()),
        ),
        sessions=_Sessions(made, seed, given, ctx_scale),
    )


def is_measured(made: Workload, options: Mapping[str, object]) -> bool:
    """Say whether a trace of these options should show the workload's targets: only how many sessions start, and when, may differ."""
    shaping = {name: value for name, value in options.items() if name not in _ARRIVALS}
    return shaping in made.variants


def seeded(seed: int, key: str) -> Random:
    """Return a generator that depends on the seed and the key alone."""
    return Random(int.from_bytes(hashlib.shake_256(f"{seed}\0w{key}".encode()).digest(32)))


@dataclass(frozen=True, slots=True)
class _Sessions:
    made: Workload
    seed: int
    given: Mapping[str, object]
    ctx_scale: float

    def __iter__(self) -> Iterator[Session]:
        sessions = self.made.generate(seeded(self.seed, self.made.name), **self.given)
        return sessions if self.ctx_scale == 1 else (scaled_session(session, self.ctx_scale) for session in sessions)


def _options(module: ModuleType) -> tuple[Option, ...]:
    types = typing.get_type_hints(module.generate, include_extras=True)
    parameters = inspect.signature(module.generate).parameters.values()
    return tuple(
        Option(name=parameter.name, type=types[parameter.name], default=parameter.default)
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    )


def _checked(made: Workload, options: Mapping[str, object]) -> dict[str, object]:
    known = {option.name: option for option in made.options}
    given = {}
    for name, value in options.items():
        if name not in known:
            raise UsageError(f"workload '{made.name}' has no option '{name}'", hint=_nearest(name, tuple(known)))
        try:
            given[name] = msgspec.convert(_weights(value) if _is_mapping(known[name]) else value, known[name].type, strict=False)
        except msgspec.ValidationError as error:
            what = str(error).partition(" - at ")[0]
            raise UsageError(f"{made.name}: {name}: {what}, got {value!r}", hint=f"the default is {known[name].default}") from error
    return given


def _is_mapping(option: Option) -> bool:
    return typing.get_origin(option.type) is Mapping


def _weights(value: object) -> object:
    """Read `chat:2,rag:1`; anything but text is left as it is."""
    if not isinstance(value, str):
        return value
    return {name.strip(): weight for name, _, weight in (part.partition(":") for part in value.split(","))}


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
