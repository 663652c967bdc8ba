"""Parse what a matrix measures on every model, as studies without endpoints and traces.

Each key of `measure` is a field of the replay; `contexts`, `concurrency` and `accuracy` hold those
of a sweep, a search and an eval. Older field names are accepted.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from agentload.errors import UsageError
from agentload.model.record import Record
from agentload.study.change import extend
from agentload.study.document import ignored_fields, study
from agentload.study.kinds import Ask, Replay, Search, Study, Sweep
from agentload.study.parts import Live

NOBODY: Final = "nobody"
"""Endpoints of a template, which has none yet."""
MIX: Final = "mix"
"""Name of a workload that means all of them at once."""
PAIRS: Final = 3
EXAMPLE_HINT: Final = "agentload matrix --preset mini-lab prints a complete one"
_OLD_LOAD: Final = {
    "sessions": "sessions",
    "waits": "wait_cap_s",
    "duration_s": "duration_s",
    "max_calls": "max_calls",
}
_OLD: Final[Mapping[str, Mapping[str, str]]] = {
    "contexts": {"lengths": "contexts", "output": "output_tokens"},
    "concurrency": {"seconds": "trial_s"},
    "accuracy": {"thinking": "thinking_tokens"},
}
_OWN: Final = ("contexts", "concurrency", "accuracy")
_ELSEWHERE: Final = {
    "traces": "workloads: {NAME: TRACE}",
    "servers": "models: {NAME: {endpoints: …}}",
}
"""Fields of a study that a matrix sets outside its templates, and how."""
_SERVERS: Final = frozenset({"model", "api_key_env", "noise", "force", "restarts"})
P = TypeVar("P", bound=Study)


class Measure(Record):
    """Hold study templates; None is not measured."""

    replay: Replay
    has_control: bool = False
    """Whether to play the reference a second time to measure the noise floor."""
    contexts: Sweep | None = None
    concurrency: Search | None = None
    searched: tuple[str, ...] = ()
    """Workloads to search, `mix` for all at once; () is each on its own."""
    accuracy: Ask | None = None


def measure(said: Mapping[str, Any], at: str, *, workloads: tuple[str, ...]) -> Measure:
    """Parse `measure`. Raises UsageError that names the field."""
    given = dict(said)
    parts = {name: given.pop(name, None) for name in _OWN}
    has_control = given.pop("aa", False)
    if not isinstance(has_control, bool):
        raise UsageError(f"{at}: 'aa' is true or false", hint=EXAMPLE_HINT)
    replay = _replay(given, at)
    servers = msgspec.structs.replace(cast(Live, replay.servers), restarts=None)
    search = _part(parts, "concurrency", at)
    sweep = _part(parts, "contexts", at)
    ask = _part(parts, "accuracy", at)
    searched = () if search is None else tuple(search.pop("workloads", ()))
    known = (*workloads, MIX)
    unknown = next((name for name in searched if name not in known), None)
    if unknown is not None:
        raise UsageError(
            f"{at}.concurrency: no workload '{unknown}'", hint=f"any of: {', '.join(known)}"
        )
    waits = {"wait_cap_s": dict(replay.load.wait_cap_s)}
    return Measure(
        replay=replay,
        has_control=has_control,
        contexts=_template(sweep, Sweep, f"{at}.contexts", servers, pairs=PAIRS, seed=replay.seed),
        concurrency=_template(
            search, Search, f"{at}.concurrency", servers, traces=["-"], seed=replay.seed, load=waits
        ),
        searched=searched,
        accuracy=_template(ask, Ask, f"{at}.accuracy", servers, seed=replay.seed),
    )


def _replay(given: Mapping[str, Any], at: str) -> Replay:
    fields = dict(given)
    _check(fields, at)
    load = fields.pop("load", None)
    if load is None:  # eight sessions at once by default
        load = {"sessions": 8}
    old = {_OLD_LOAD[name]: fields.pop(name) for name in _OLD_LOAD if name in fields}
    servers = {
        "endpoints": NOBODY,
        "restarts": 3,
        **{name: fields.pop(name) for name in _SERVERS if name in fields},
    }
    load = load | old if isinstance(load, dict) else load
    fields |= {"traces": ["-"], "load": load, "servers": servers}
    made = _study(fields, Replay, at)
    asked = cast(Live, made.servers)
    if asked.restarts is not None:  # no more starts than pairs
        asked = msgspec.structs.replace(asked, restarts=min(asked.restarts, made.pairs))
    return msgspec.structs.replace(made, servers=asked)


def _part(parts: Mapping[str, object], name: str, at: str) -> dict[str, Any] | None:
    """Return the fields of a part by their names in a study."""
    said = parts[name]
    if said is None:
        return None
    given = {"contexts": said} if name == "contexts" and isinstance(said, str | int) else said
    if not isinstance(given, dict):
        raise UsageError(
            f"{at}.{name}: expected a mapping, got {type(said).__name__}", hint=EXAMPLE_HINT
        )
    _check(given, f"{at}.{name}")
    return {_OLD[name].get(field, field): value for field, value in given.items()}


def _check(given: Mapping[str, Any], at: str) -> None:
    """Raise UsageError for what is said elsewhere in the file: here it would be lost."""
    said = next((name for name in _ELSEWHERE if name in given), None)
    if said is not None:
        raise UsageError(f"{at}: '{said}' is not a template's to say", hint=_ELSEWHERE[said])


def _template(
    said: Mapping[str, Any] | None, kind: type[P], at: str, servers: Live, **defaults: Any
) -> P | None:  # fields of a study
    if said is None:
        return None
    fields = {**defaults, **said}
    if fields.get("tasks") == []:
        del fields["tasks"]
    made = _study({**fields, "servers": {"endpoints": NOBODY}}, kind, at)
    asked = msgspec.structs.replace(made, servers=servers)
    return extend(asked, **{flag.path[-1]: flag.default for flag in ignored_fields(asked)})


def _study(fields: Mapping[str, Any], kind: type[P], at: str) -> P:
    try:
        return cast(P, study(fields, kind, at=at))
    except UsageError as error:
        raise UsageError(error.message, hint=error.hint or EXAMPLE_HINT) from error
