"""Find workloads, and make traces with them."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from random import Random
from typing import Any, Final

import msgspec

from agentload.errors import UsageError
from agentload.model.record import Record
from agentload.model.trace import Header, Segment, Session, Trace, Turn, image_tokens
from agentload.model.walk import again
from agentload.plugins import (
    Broken,
    Option,
    Plugins,
    convert_options,
    generator,
    help_of,
    keywords,
    options,
)
from agentload.workloads.parts.targets import QuantileTarget, Range
from agentload.workloads.parts.times import ArrivalProcess

PLUGINS: Final = Plugins(room="agentload.workloads", kind="workload", needs=("generate",))
names: Final = PLUGINS.names
_ARRIVALS: Final = frozenset(each.name for each in fields(ArrivalProcess))


class Workload(Record):
    """A generator, its options and its help."""

    name: str
    help: str
    options: tuple[Option, ...]
    prefixes: Mapping[str, tuple[Segment, ...]]
    targets: Mapping[str, QuantileTarget | Range]
    """Measured lengths and waits, by the field names of `tracefile.overview`."""
    variants: tuple[Mapping[str, object], ...]
    """Options under which all targets can be compared."""
    generate: Callable[..., Iterator[Session]]

    def sessions(self, rng: Random, given: Mapping[str, object]) -> Iterator[Session]:
        """Generate sessions under these options."""
        return self.generate(rng, **keywords(self.generate, given))


def every() -> tuple[Workload | Broken, ...]:
    """Return all workloads, sorted by name."""
    return tuple(PLUGINS.every(workload))


def workload(name: str) -> Workload:
    """Return the workload of that name; raise `UsageError` naming the nearest if there is none."""
    return _workload(name, PLUGINS.load(name))


def ours(*, without: str) -> Mapping[str, Workload]:
    """Return the workloads of the package except one, by name."""
    return {
        name: _workload(name, PLUGINS.load_own(name)) for name in PLUGINS.own() if name != without
    }


# a module, or what an entry point names
def _workload(name: str, found: Any) -> Workload:  # noqa: ANN401
    """Return the workload of a module."""
    return Workload(
        name=PLUGINS.shown(name),
        help=help_of(found) + _origin_of_fit(found),
        options=options(found.generate),
        prefixes=getattr(found, "PREFIXES", {}),
        targets=getattr(found, "TARGETS", {}),
        variants=getattr(found, "VARIANTS", ({},)),
        generate=found.generate,
    )


def _origin_of_fit(found: Any) -> str:  # noqa: ANN401  # as above
    """Say which real trace a workload is fitted to, and what no public trace says about it."""
    real = getattr(found, "REAL", None)
    unsaid = getattr(found, "UNSAID", None)
    if real and unsaid:
        return f"\n\nFitted to: {real}.\nNo public trace says: {unsaid}."
    return ""


def trace(
    name: str, *, seed: int, options: Mapping[str, object] | None = None, ctx_scale: float = 1.0
) -> Trace:
    """Return the trace of a workload; each iteration generates the same sessions again.

    Options may be text, as a user types them; `ctx_scale`
    multiplies every length, for models with small windows.
    """
    made = workload(name)
    given = convert_options(made.name, made.options, options or {}, kind="workload")
    if not 0 < ctx_scale <= 100:
        raise UsageError(f"ctx_scale must be in (0, 100], got {ctx_scale:g}")
    sessions = _sessions(made, seed, given, ctx_scale)
    iter(sessions)  # checks the combination of options now
    said: dict[str, object] = {"workload": made.name, "options": given}
    if ctx_scale != 1:
        said["ctx_scale"] = ctx_scale
    return Trace(
        header=Header(
            name=made.name,
            seed=seed,
            prefixes={
                key: tuple(_segment(part, ctx_scale) for part in parts)
                for key, parts in made.prefixes.items()
            },
            source=tuple((key, msgspec.json.encode(value).decode()) for key, value in said.items()),
        ),
        sessions=sessions,
    )


def is_measured(made: Workload, options: Mapping[str, object]) -> bool:
    """Return whether a trace with these options should meet the
    targets: only the number and times of sessions may differ.
    """
    shaping = {name: value for name, value in options.items() if name not in _ARRIVALS}
    return shaping in made.variants


@again
def _sessions(
    made: Workload, seed: int, given: Mapping[str, object], factor: float
) -> Iterator[Session]:
    """Multiply all lengths, so that a workload fits a smaller
    (or fills a larger) window with the same shape; waits stay.
    """
    sessions = made.sessions(generator(f"{seed}\0w{made.name}"), given)
    if factor == 1:
        return sessions
    return (
        replace(session, turns=tuple(_turn(turn, factor) for turn in session.turns))
        for session in sessions
    )


def _turn(turn: Turn, factor: float) -> Turn:
    return replace(
        turn,
        add=tuple(_segment(segment, factor) for segment in turn.add),
        output=_length(turn.output, factor),
        thinking=None if turn.thinking is None else _length(turn.thinking, factor),
    )


def _segment(segment: Segment, factor: float) -> Segment:
    """Multiply a length; an image is scaled so that its number of patches is."""
    if segment.pixels is None:
        return replace(segment, tokens=_length(segment.tokens, factor))
    width, height = (max(1, round(side * math.sqrt(factor))) for side in segment.pixels)
    return replace(segment, pixels=(width, height), tokens=image_tokens((width, height)))


def _length(tokens: int, factor: float) -> int:
    if not tokens:
        return 0
    return max(1, round(tokens * factor))
