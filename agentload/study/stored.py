"""What the database says of how a run was made: its study, and what was found out when it began."""

import json
from typing import Any, get_args, get_type_hints

import msgspec

from agentload.errors import UsageError
from agentload.model.metrics import ClockStart, clock_start
from agentload.model.rows import RunRow
from agentload.model.shape import TraceShape
from agentload.study.fields import Part
from agentload.study.kinds import Replay, Search, Study, Sweep


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
    trace_shape: tuple[TraceShape, ...] = ()
    """What the calls of the whole trace are like, by workload, however many of them were played."""
    held_tokens: float | None = None
    """Contexts that the windows of its pairs hold at once, in nineteen of twenty."""
    sessions_of_hours: float | None = None
    """Sessions that are at work over hours as often as those of its windows are."""
    cuts_waits: bool = False
    """Users of its pairs answer sooner than those of
    the trials beside it, who wait as the user's own do.
    """
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
        said = {
            name: value
            for name, value in msgspec.to_builtins(self).items()
            if value not in (None, {}, [], ()) and value is not False
        }
        return json.dumps(said, sort_keys=True)


def notes(options: str) -> Notes:
    """Read the column `options`."""
    return msgspec.convert(json.loads(options), Notes)


def study_of(run: RunRow) -> Study | None:
    """Return the study of a run; None where an older version did not store it."""
    return None if run.study is None else stored(run.study)


def stored(text: str) -> Study:
    """Read a study as it was stored: it is what ran, though it may be refused today."""
    try:
        found: Study = msgspec.convert(_known(json.loads(text), Study), Study)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the run's study: {error}", hint="read the database with the agentload that wrote it"
        ) from error
    return found


def _known(said: Any, hint: Any) -> Any:  # noqa: ANN401  # JSON, and a type
    """Return what this version knows of a stored part: a newer one may have written more."""
    if isinstance(said, list):
        return [_known(each, hint) for each in said]
    parts = [
        each
        for each in (hint, *get_args(hint))
        if isinstance(each, type) and issubclass(each, Part)
    ]
    part = next(
        (
            each
            for each in parts
            if isinstance(said, dict) and each.__struct_config__.tag in (None, said.get("kind"))
        ),
        None,
    )
    if part is None:
        return said
    hints = get_type_hints(part)
    return {
        name: _known(value, hints.get(name))
        for name, value in said.items()
        if name in hints or name == "kind"
    }


def clock_start_of(study: Study | None) -> ClockStart:
    """Return where the clocks of a run's turns start;
    the view `turns` says the same of a row of `runs`.
    """
    match study:
        case Replay(capacity=None, load=load) | Search(load=load):
            return clock_start(load.planned())
        case Replay() | Sweep():
            return "released"  # one call at a time, or a closed loop of so many sessions
        case _:
            return "due"
