"""Compare two studies: how they differ, and the study with which a run is resumed."""

from collections.abc import Collection, Iterator
from pathlib import PurePath
from typing import Any, Final, TypeVar

import msgspec

from agentload.study.document import fields_of, tag
from agentload.study.fields import Role
from agentload.study.kinds import Ask, Replay, Search, Study

S = TypeVar("S", bound=Study)

WHAT: Final[frozenset[Role]] = frozenset({"what"})
WORDS: Final = {"traces": "trace", "cache": "cache setting", "thinking": "thinking tokens"}
"""Words for a field in prose, where they differ from the name of its option."""


def differences(a: Study, b: Study, *, roles: Collection[Role] = WHAT) -> tuple[str, ...]:
    """Name the fields of these roles in which two studies differ."""
    return tuple(name for name, _, _ in changes(a, b, roles=roles))


def changes(
    a: Study, b: Study, *, roles: Collection[Role] = WHAT
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields of these roles in which two studies differ, with both values."""
    if type(a) is not type(b) or type(a.servers) is not type(b.servers):
        yield "kind of study", tag(type(a)), tag(type(b))
        return
    for flag in fields_of(a):
        one = flag.value(a)
        other = flag.value(b)
        if flag.said.role in roles and _compared(one) != _compared(other):
            name = flag.option.removeprefix("--")
            yield WORDS.get(name, name), one, other


def _compared(value: Any) -> Any:  # noqa: ANN401  # a field's
    """Return the part of a value that counts: a trace's content, not its folder."""
    if isinstance(value, tuple) and value and hasattr(value[0], "sha256"):
        return tuple(each.sha256 or PurePath(each.path).name for each in value)
    return value


def typed_alone(made: Study) -> Study:
    """Return a study whose traces are known by their names alone, as they are typed."""
    if not isinstance(made, Replay | Search):
        return made
    refs = tuple(msgspec.structs.replace(each, sha256=None) for each in made.traces)
    return msgspec.structs.replace(made, traces=refs)


def extend(made: S, **fields: Any) -> S:  # each of its field's type
    """Return a study with new values for some fields, its own or those of its parts.

    Raises TypeError for a field that the study does not have.
    """
    wanted = dict(fields)
    out = made
    for flag in fields_of(made):
        *parts, name = flag.path
        if name not in wanted:
            continue
        changed = {name: wanted.pop(name)}
        for part in parts:
            changed = {part: msgspec.structs.replace(getattr(out, part), **changed)}
        out = msgspec.structs.replace(out, **changed)
    if wanted:
        raise TypeError(f"a {type(made).__name__} has no {', '.join(wanted)}")
    return out


def resumption(began: S, now: S) -> S:
    """Return the study with which a run is resumed.

    It is the study typed *now*, with the values that the first process found out, where
    none are typed.
    """
    if not (isinstance(began, Replay) and isinstance(now, Replay)):
        return now
    if now.capacity is not None and now.load.duration_s is None:
        now = extend(now, duration_s=began.load.duration_s)
    return given_pairs(began, now)


def given_pairs(began: Replay, now: S) -> S:
    """Return *now* with the blocks of the run's first study, if its number of pairs differs.

    The trace is then cut, and arms exchange machines, as before.
    """
    if not isinstance(now, Replay) or now.pairs == began.pairs:
        return now
    # Windows are drawn from all of the trace, however many pairs play them.
    is_drawn = (now.windows, now.benchmark) != (None, None)
    if is_drawn and not now.swap:
        return now
    return extend(now, blocks=began.blocks or began.pairs)


def essence(study: Study) -> str:
    """Return a text that is equal for studies that measure the same, whatever trace they play.

    For an evaluation, the number of questions is part of the text.
    """
    roles = ("what", "amount") if isinstance(study, Ask) else ("what",)
    said = {"kind": tag(type(study))}
    for flag in fields_of(study):
        if flag.said.role in roles and flag.path != ("traces",):
            said[".".join(flag.path)] = msgspec.to_builtins(_compared(flag.value(study)))
    return msgspec.json.encode(said).decode()
