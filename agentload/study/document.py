"""Write and read a study as a document: YAML for people, JSON in the database.

`{"study": 1, "kind": "replay", …}`, all defaults written out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast, get_args

import msgspec
import yaml

from agentload import documents
from agentload.errors import UsageError, not_among
from agentload.study.fields import SERVERS, Flag, Part, flags, in_fields, server_flags
from agentload.study.forms import form_of
from agentload.study.kinds import Study
from agentload.study.parts import Live, Virtual

VERSION: Final = 1
SHOWN: Final = "agentload replay TRACE --endpoints ENDPOINTS --print-study prints one"
IDLE: Final = (None, False, 0)
"""Values of a field that leave its function unused."""
_PLACE: Final = re.compile(r" - at (?:`key` in )?`\$\.?([^`]*)`")


def tag(part: type[Part]) -> str:
    """Return the tag by which a part is distinguished in its union."""
    return str(part.__struct_config__.tag)


KINDS: Final[Mapping[str, type[Part]]] = {tag(kind): kind for kind in get_args(Study)}


def builtins(made: Study) -> dict[str, Any]:
    """Return a study as a document of dicts, lists, numbers and text."""
    return {"study": VERSION, **msgspec.to_builtins(made)}


def json_text(made: Study) -> str:
    """Write a study as one line of JSON, equal for equal studies.

    Fields that do nothing, given the others, are left out.
    """
    said = builtins(made)
    for flag in in_vain(made):
        *above, name = flag.path
        part = said
        for each in above:
            part = part[each]
        del part[name]
    return msgspec.json.encode(said).decode()


def in_vain(made: Study) -> Iterator[Flag]:
    """Yield the fields that do nothing, because none of the fields that they need is set."""
    _, form = form_of(made)
    own = form.flags()
    is_set = {flag.option: flag.value(made) not in IDLE for flag in own}
    for flag in own:
        needed = is_set.keys() & {*flag.said.needs}
        if needed and not any(is_set[option] for option in needed):
            yield flag


def yaml_text(made: Study) -> str:
    """Write a study as YAML."""
    return str(yaml.safe_dump(builtins(made), sort_keys=False, allow_unicode=True, width=120))


def parse(text: str, *, at: str) -> Study:
    """Read a study from YAML or JSON. Raises UsageError that names the place and the field."""
    document = documents.parse(text, at=at, raises=UsageError)
    return read(document, at=at)


def read(document: object, *, at: str) -> Study:
    """Read a study from a parsed document; raise UsageError that names the field."""
    if not isinstance(document, dict):
        raise UsageError(
            f"{at}: a study is a mapping of fields, got {type(document).__name__}", hint=SHOWN
        )
    fields = dict(document)
    version = fields.pop("study", None)
    kind = fields.pop("kind", None)
    if version != VERSION or isinstance(version, bool):
        raise UsageError(f"{at}: 'study' must be {VERSION}, got {version!r}", hint=SHOWN)
    if not isinstance(kind, str) or kind not in KINDS:
        raise UsageError(f"{at}: no kind of study '{kind}'", hint=f"one of: {', '.join(KINDS)}")
    try:
        return study(fields, KINDS[kind], at=at)
    except UsageError as error:
        raise UsageError(error.message, hint=error.hint or SHOWN) from error


def study(
    fields: Mapping[str, Any],
    kind: type[Part],
    *,
    at: str = "",
    named: Mapping[tuple[str, ...], str] | None = None,
) -> Study:
    """Make a study of its fields; any quantity may be given as text.

    Raises UsageError, which uses the name in *named* for a field that has one there.
    """
    try:
        return _study(fields, kind, named or {})
    except UsageError as error:
        message, hint = error.message, error.hint
        if named is None:  # it was read from a file, in whose words the error is said
            known = _options(kind)
            message = in_fields(message, known)
            hint = None if hint is None else in_fields(hint, known)
        raise UsageError(f"{at}: {message}" if at else message, hint=hint) from error


def _options(kind: type[Part]) -> dict[str, Flag]:
    """Return the options of a kind of study, and of its servers, each with its place in a file."""
    every = (*server_flags(Live), *server_flags(Virtual), *flags(kind))
    return {flag.option: flag for flag in every}


def _study(
    fields: Mapping[str, Any], kind: type[Part], names: Mapping[tuple[str, ...], str]
) -> Study:
    try:
        made = cast(Study, msgspec.convert(_quantities(fields, kind), kind))
    except msgspec.ValidationError as error:
        message = _PLACE.sub("", str(error))
        found = _PLACE.search(str(error))
        if found is None:
            raise UsageError(message) from error
        place = found[1]
        name = names.get(tuple(place.split(".")), place)
        raise UsageError(f"{name}: {message}" if name else message) from error
    for flag in fields_of(made):
        flag.check(flag.value(made), names.get(flag.path, ".".join(flag.path)))
    return made.checked()


def fields_of(made: Study) -> tuple[Flag, ...]:
    """List every field of a study, those of its servers included."""
    return (*flags(type(made)), *server_flags(type(made.servers)))


def ignored_fields(made: Study) -> Iterator[Flag]:
    """Yield the set fields that the study's verb ignores, as it has no options for them."""
    _, form = form_of(made)
    for flag in fields_of(made):
        if form.without & {*flag.path} and flag.value(made) != flag.default:
            yield flag


def _quantities(fields: Mapping[str, Any], kind: type[Part]) -> dict[str, Any]:
    """Return the fields with the servers' kind set, and quantities read from their texts.

    Servers with a profile are virtual, others live.
    """
    made: dict[str, Any] = _copied(fields)
    servers = made.get(SERVERS)
    if isinstance(servers, dict):
        servers.setdefault("kind", tag(Virtual if "profile" in servers else Live))
        _read(made, server_flags(Virtual if servers["kind"] == tag(Virtual) else Live))
    _read(made, flags(kind))
    return made


def _read(root: dict[str, Any], known: Iterable[Flag], at: str = "") -> None:
    """Replace the texts in the *known* fields of a part by the values that they say."""
    for flag in known:
        *above, name = flag.path
        holder: Any = root
        for each in above:
            holder = holder.get(each) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and name in holder:
            holder[name] = _value(flag, holder[name], f"{at}{'.'.join(flag.path)}")


# ANN401: what a document holds, and what a field takes
def _value(flag: Flag, value: Any, place: str) -> Any:  # noqa: ANN401
    """Return the value that a field's text says; other values stay as they are."""
    name = flag.path[-1]
    if isinstance(value, dict):
        return _mapping(flag, value, place)
    if name == "traces":
        return _traces(value)
    if name == "contexts" and isinstance(value, int):
        value = str(value)
    if name == "contexts" and isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    if not isinstance(value, str) or flag.type is str:
        return value
    if not flag.choices:
        return flag.text.read(value, place)
    if value not in flag.choices:
        raise UsageError(not_among(place, flag.choices, value))
    return value


def _mapping(flag: Flag, value: dict[str, Any], place: str) -> dict[str, Any]:
    """Return a part, or quantities by kind, with their texts read."""
    if isinstance(flag.type, type) and issubclass(flag.type, Part):
        _read(value, flags(flag.type), f"{place}.")
        return value
    if not flag.said.repeated:
        return value
    for kind, each in value.items():
        if isinstance(each, str):
            value[kind] = flag.text.read(each, place)
    return value


def _traces(value: object) -> object:
    """Return the traces of a study, each of which may be a path alone."""
    paths = [value] if isinstance(value, str) else value
    if not isinstance(paths, list | tuple):
        return value
    return [{"path": each} if isinstance(each, str) else each for each in paths]


def _copied(value: Any) -> Any:  # noqa: ANN401  # what YAML holds
    if not isinstance(value, dict):
        return value
    return {name: _copied(each) for name, each in value.items()}
