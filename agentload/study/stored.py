"""What the database says of how a run was made: its study, and what was found out when it began. Rows of older versions are converted."""

import json
import shlex
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

import msgspec

from agentload.errors import AgentloadError, UsageError
from agentload.model.metrics import ClockStart, clock_start
from agentload.model.rows import RunRow
from agentload.study.argv import built, split
from agentload.study.change import extended
from agentload.study.fields import Part
from agentload.study.kinds import Replay, Search, Study, Sweep
from agentload.study.parts import Burst, Live, Load, Servers, Slo, TraceRef, Virtual


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out when a run began: the column `options`. Absent is empty."""

    calls: dict[str, int] = {}
    """Planned, by arm."""
    lengths: Any = None
    """What the lengths of prompts rest on."""
    caveats: tuple[str, ...] = ()
    """What spoke against measuring these servers."""
    ideal_hit_rates: dict[str, float] = {}
    """By workload: what a cache without bounds would hit."""
    source: dict[str, Any] = {}
    """Where the trace came from, as its header says."""
    fill_minutes: dict[str, float] = {}
    """By arm: when its KV pool was expected to be full."""
    machines: tuple[dict[str, str], ...] = ()
    """Where each arm ran, stretch by stretch, if any moved."""
    arms: tuple[str, ...] = ()
    """That were asked, of an evaluation."""
    digest: str | None = None
    """Of a file of items."""
    rounds: int | None = None
    """Of the plan."""
    job: str | None = None
    """The scheduled comparison that it is an execution of."""

    def text(self) -> str:
        """Write the notes as JSON, without what is empty."""
        said = {name: value for name, value in msgspec.to_builtins(self).items() if value not in (None, {}, [], ())}
        return json.dumps(said, sort_keys=True)


def notes(options: str) -> Notes:
    """Read the column `options`, of any version."""
    said = json.loads(options)
    capacity = said.get("capacity")
    if isinstance(capacity, dict) and "fill_minutes" in capacity:
        said["fill_minutes"] = capacity["fill_minutes"]
    return msgspec.convert(said, Notes)


def study_of(run: RunRow) -> Study | None:
    """Return the study of a run; None where an older version did not write down enough of it."""
    return stored(run.study, command=run.command, options=run.options, design=run.design, seed=run.seed)


def stored(study: str | None, *, command: str, options: str, design: str | None = None, seed: int = 0) -> Study | None:
    """Return the study of a run: as it is stored, or, of an older version, as its command and its options tell; None where they do not."""
    if study is not None:
        try:
            found: Study = msgspec.convert(_known(json.loads(study), Study), Study)  # as it ran, though it may be refused today
            return found
        except msgspec.ValidationError as error:
            raise UsageError(f"the run's study: {error}", hint="read the database with the agentload that wrote it") from error
    try:
        return built(*split(shlex.split(command)[1:]))
    except (AgentloadError, ValueError):
        return _by_options(json.loads(options), design or "interleaved", seed)


def _known(said: Any, hint: Any) -> Any:  # noqa: ANN401  # JSON, and a type
    """Return what this version knows of a stored part: a newer one may have written more."""
    if isinstance(said, list):
        return [_known(each, hint) for each in said]
    parts = [each for each in (hint, *get_args(hint)) if isinstance(each, type) and issubclass(each, Part)]
    part = next((each for each in parts if isinstance(said, dict) and each.__struct_config__.tag in (None, said.get("kind"))), None)
    if part is None:
        return said
    hints = get_type_hints(part)
    return {name: _known(value, hints.get(name)) for name, value in said.items() if name in hints or name == "kind"}


def clock_start_of(study: Study | None) -> ClockStart:
    """Return where the clocks of a run's turns start; the view `turns` says the same of a row of `runs`."""
    match study:
        case Replay(capacity=None, load=load) | Search(load=load):
            return clock_start(load.planned())
        case Replay() | Sweep():
            return "released"  # one call at a time, or a closed loop of so many sessions
        case _:
            return "due"


def _by_options(options: Mapping[str, Any], design: str, seed: int) -> Study | None:
    """Return a replay whose command is not one of `replay`, such as that of a job: by the conditions that older versions wrote down."""
    if not options.get("load"):
        return None
    servers: Servers = Virtual(profile=options["profile"]) if "profile" in options else Live(endpoints="")
    capacity = options.get("capacity") or {}
    made = Replay(
        traces=tuple(TraceRef(path=str(each)) for each in options.get("traces", ())),
        servers=servers,
        pairs=int(options.get("pairs") or 6),
        cache=options.get("cache", "cold"),
        load=_load(options["load"]),
        capacity=capacity.get("agents"),
    )
    slo = {name: value for name, value in (capacity.get("slo") or {}).items() if name in Slo.__struct_fields__}
    return extended(made, design=design, seed=seed, **({"slo": Slo(**slo)} if slo else {}))


def _load(said: Mapping[str, Any]) -> Load:
    arrivals, budget = said.get("arrivals", {}), said.get("budget", {})
    burst = arrivals.get("burst")
    waits = said.get("waits", {})
    return Load(
        sessions=arrivals.get("sessions"),
        rate_per_s=arrivals.get("rate_per_s"),
        cv=arrivals.get("cv", 1.0),
        ramp_s=arrivals.get("ramp_s", 0.0),
        ramp_from_per_s=arrivals.get("ramp_from_per_s", 0.0),
        burst=None if burst is None else Burst(factor=burst["factor"], lasts_s=burst["seconds"], every_s=burst["every_s"]),
        speed=arrivals.get("speed", 1.0),
        max_in_flight=said.get("max_in_flight"),
        wait_scale={kind: each["scale"] for kind, each in waits.items() if each.get("scale", 1.0) != 1.0},
        wait_cap_s={kind: each["cap_s"] for kind, each in waits.items() if each.get("cap_s") is not None},
        max_calls=budget.get("calls"),
        max_tokens=budget.get("tokens"),
        duration_s=budget.get("seconds"),
        cancel_share=said.get("cancel_share", 0.0),
        history=said.get("history", "fixed"),
        retries=said.get("retries", 0),
    )
