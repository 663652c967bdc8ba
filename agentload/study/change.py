"""Two studies beside each other: what tells one
from the other, and one that goes on with another.
"""

from collections.abc import Collection, Iterator
from pathlib import PurePath
from typing import Any, Final, TypeVar

import msgspec

from agentload.study.document import fields_of, tag
from agentload.study.fields import Role
from agentload.study.kinds import Ask, Replay, Study

S = TypeVar("S", bound=Study)

WHAT: Final[frozenset[Role]] = frozenset({"what"})
WORDS: Final = {"traces": "trace", "cache": "cache setting", "thinking": "thinking tokens"}
"""What people call a field, where it is not the name of its option."""


def differences(a: Study, b: Study, *, roles: Collection[Role] = WHAT) -> tuple[str, ...]:
    """Name what two studies differ by, among the
    fields of these roles; equal ones measure the same.
    """
    return tuple(name for name, _, _ in changes(a, b, roles=roles))


def changes(
    a: Study, b: Study, *, roles: Collection[Role] = WHAT
) -> Iterator[tuple[str, Any, Any]]:
    """Yield what two studies differ by, among the fields of these roles, with both values."""
    if type(a) is not type(b) or type(a.servers) is not type(b.servers):
        yield "kind of study", tag(type(a)), tag(type(b))
        return
    for _, flag in fields_of(a):
        one, other = flag.value(a), flag.value(b)
        if flag.said.role in roles and _compared(one) != _compared(other):
            name = flag.option.removeprefix("--")
            yield WORDS.get(name, name), one, other


def _compared(value: Any) -> Any:  # noqa: ANN401  # a field's
    """Return what counts of a value: a trace is what it holds, wherever it lies."""
    if isinstance(value, tuple) and value and hasattr(value[0], "sha256"):
        return tuple(each.sha256 or PurePath(each.path).name for each in value)
    return value


def extended(made: S, **fields: Any) -> S:  # each of its field's type
    """Return a study with other values of some fields, wherever in it they stand.

    Raises TypeError for one that it has not.
    """
    wanted = dict(fields)
    by_part: dict[tuple[str, ...], dict[str, Any]] = {}
    for path, _ in fields_of(made):
        if path[-1] in wanted:
            by_part.setdefault(path[:-1], {})[path[-1]] = wanted.pop(path[-1])
    if wanted:
        raise TypeError(f"a {type(made).__name__} has no {', '.join(wanted)}")
    out = made
    for part, values in by_part.items():
        out = msgspec.structs.replace(
            out,
            **(
                values
                if not part
                else {part[0]: msgspec.structs.replace(getattr(out, part[0]), **values)}
            ),
        )
    return out


def resumed(began: S, now: S) -> S:
    """Return the study by which a run goes on: the one that is typed
    now, with what the first process found out and nobody has typed.
    """
    if not (isinstance(began, Replay) and isinstance(now, Replay)):
        return now
    if now.capacity is not None and now.load.duration_s is None:
        now = extended(now, duration_s=began.load.duration_s)
    return given_pairs(began, now)


def given_pairs(began: Replay, now: S) -> S:
    """Return a study with more pairs than a run began with, whose
    trace is cut, and whose arms change places, as they were.
    """
    if (
        not isinstance(now, Replay)
        or now.pairs == began.pairs
        or (now.windows is not None and not now.swap)
    ):
        return now  # windows are drawn from all of the trace, however many pairs play them
    return extended(now, blocks=began.blocks or began.pairs)


def essence(study: Study) -> str:
    """Return what tells a study from those that measure something
    else, whatever it plays; of questions, their number too.
    """
    roles = ("what", "amount") if isinstance(study, Ask) else ("what",)
    counted = (
        (path, flag)
        for path, flag in fields_of(study)
        if flag.said.role in roles and path != ("traces",)
    )
    said = {
        ".".join(path): msgspec.to_builtins(_compared(flag.value(study))) for path, flag in counted
    }
    return msgspec.json.encode({"kind": tag(type(study)), **said}).decode()
