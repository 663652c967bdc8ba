"""Read from the database how a run was made: its study, and the notes of its start."""

import json
from functools import lru_cache
from typing import Any, get_args, get_type_hints

import msgspec

from agentload.errors import UsageError
from agentload.model.metrics import ClockStart, clock_start
from agentload.model.rows import RunRow
from agentload.model.shape import TraceShape
from agentload.study.fields import Part
from agentload.study.kinds import Replay, Search, Study, Sweep


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out when a run began, as the column `options`; unknown values are empty."""

    calls: dict[str, int] = {}
    """Planned calls by arm."""
    lengths: Any = None
    """How the lengths of prompts were counted."""
    caveats: tuple[str, ...] = ()
    """Reasons against measuring these servers, as found before the run."""
    ideal_hit_rates: dict[str, float] = {}
    """Hit rate of an unlimited cache, by workload."""
    trace_shape: tuple[TraceShape, ...] = ()
    """Shape of the whole trace's calls by workload, however many of them were played."""
    held_tokens: float | None = None
    """Tokens of contexts that its pairs' windows hold at once, at most, in 19 windows of 20."""
    sessions_of_hours: float | None = None
    """Number of sessions that over hours give as much load as those of its windows."""
    free_lengths: tuple[str, ...] = ()
    """Arms whose answers end where the model ends them, instead of at a forced length."""
    cuts_waits: bool = False
    """Whether its pairs' users wait less than those of its trials, who wait as real users do."""
    source: dict[str, Any] = {}
    """Where the trace came from, as its header says."""
    fill_minutes: dict[str, float] = {}
    """Minutes until each arm's KV pool was expected to be full."""
    machines: tuple[dict[str, str], ...] = ()
    """Machine of each arm in each stretch of the run, if arms were exchanged."""
    arms: tuple[str, ...] = ()
    """Arms that an evaluation asked."""
    digest: str | None = None
    """Hash of a file of items."""
    rounds: int | None = None
    """Rounds of the plan."""
    job: str | None = None
    """Scheduled comparison that the run is an execution of."""

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
    if run.study is None:
        return None
    return parse_stored(run.study)


@lru_cache(maxsize=16)
def parse_stored(text: str) -> Study:
    """Read a stored study without today's checks: it ran, even if it would be refused now.

    Every caller has the same one, so its mappings are only read.
    """
    try:
        found: Study = msgspec.convert(_known(json.loads(text), Study), Study)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the run's study: {error}", hint="read the database with the agentload that wrote it"
        ) from error
    return found


def _known(said: Any, hint: Any) -> Any:  # noqa: ANN401  # JSON, and a type
    """Return the fields of a stored part that this version knows; a newer one may write more."""
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
    """Return where the clocks of a run's turns start, as the view `turns` has it."""
    match study:
        case Replay(capacity=None, load=load) | Search(load=load):
            return clock_start(load.planned())
        case Replay() | Sweep():
            return "released"  # one call at a time, or a closed loop with a number of sessions
        case _:
            return "due"
