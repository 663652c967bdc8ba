"""Read `--endpoints`: URLs, an arms file or some of its arms, or `emulated:PROFILE[/ARM]`.

URLs are written `a=URL,b=URL`, some arms of a file `arms.yaml/a+b`. A name
that is given again is a replica of its arm: `a=URL1,a=URL2,b=URL3,b=URL4`. An arms file
is YAML: `model`, and under `arms` a mapping for each name. A field next to `arms` holds
for all of them.
"""

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Meta

from agentload import documents
from agentload.dispatch.counting import Counting
from agentload.endpoints.arguments import (
    holds_key,
    keys_in_body,
    keys_in_environment,
    keys_in_headers,
)
from agentload.endpoints.endpoint import (
    Connections,
    Endpoint,
    Launch,
    checked_url,
    without_credentials,
    without_user,
)
from agentload.endpoints.facts import EXPECTABLE
from agentload.errors import EndpointError
from agentload.model.controls import replica

Text: TypeAlias = str | int | float
"""What YAML makes of a text without quotes."""
Reader: TypeAlias = Callable[[object, str], object]
"""Takes a value and its place in the file; raises EndpointError for a wrong value."""
Gpu: TypeAlias = Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern=r"^\d+(/\d+)?$")]
EXAMPLE_FILE: Final = "arms: {bf16: {url: http://127.0.0.1:8000/v1}}"
KNOWN: Final = (
    frozenset(each.name for each in fields(Endpoint)) - {"name", "profile", "places", "replicas"}
) | {"machines"}
EXCLUSIVE: Final = (("key_env", "key_command"), ("proxy", "proxy_env"))
EXAMPLE = "--endpoints bf16=http://127.0.0.1:8000/v1,fp8=http://127.0.0.1:8001/v1"
REPLICAS: Final = "url: [http://10.0.0.1:8000/v1, http://10.0.0.2:8000/v1]"
EMULATED = "emulated:"
YAML: Final = (".yaml", ".yml")
_TELLS_APART: Final = ("url", "launch", "model", "aliases", "extra_body", "headers", "header_env")


@dataclass(frozen=True, slots=True)
class _Kind:
    """Reader of one type of value; errors name the type by *words* and show *hint*."""

    type: object
    words: str
    hint: str
    made: Callable[[Any], object] = lambda value: value
    is_shown: bool = True
    """Whether an error may show the value, because it is no secret."""

    # ANN401: the fields of an endpoint have many types
    def __call__(self, value: object, where: str) -> Any:  # noqa: ANN401
        try:
            return self.made(msgspec.convert(value, self.type))
        except msgspec.ValidationError as error:
            got = repr(value) if self.is_shown else type(value).__name__
            raise EndpointError(
                f"{where} must be {self.words}, got {got}", hint=self.hint
            ) from error


def value_of(field: str, value: object, where: str) -> object:
    """Read the value of an endpoint's field; raise EndpointError for a wrong value."""
    return _READERS[field](value, where)


def _by_name(found: Mapping[object, object]) -> dict[str, object]:
    return {str(key): each for key, each in found.items()}


def _strings(found: Iterable[object]) -> tuple[str, ...]:
    return tuple(map(str, found))


_TEXT: Final = _Kind(Text, "text", "put it in quotes", made=str, is_shown=False)
_TRUTH: Final = _Kind(bool, "true or false", "leave it out for true")
_COUNT: Final = _Kind(
    Annotated[int, Meta(ge=1)], "a whole number of at least 1", "leave it out if it is not known"
)
_NUMBER: Final = _Kind(
    Annotated[float, Meta(ge=0, le=sys.float_info.max)], "a number", "price_per_hour: 2.5"
)
_POLICY: Final = _Kind(Connections, "session, pool or call", "connections: session")
_COUNTING: Final = _Kind(Counting, ", ".join(get_args(Counting)), "counting: usage")
_NAMES: Final = _Kind(
    list[Text], "text, or a list of texts", "put each in quotes", made=_strings, is_shown=False
)
_MAPPING: Final = _Kind(
    dict[Any, Any], "a mapping", "write it as {name: value}", made=_by_name, is_shown=False
)
_GPUS: Final = _Kind(
    list[Gpu],
    "a list of GPU numbers",
    "gpu_ids: [0, 1], or [0/7] for instance 7 of a GPU that is split",
    made=_strings,
)


def _proxy(value: object, where: str) -> str:
    url = checked_url(value, where)
    if without_user(url) != url:
        raise EndpointError(
            f"{where} holds a password",
            hint="proxy_env: VARIABLE that holds the URL, so that it is in no file",
        )
    return url


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _texts(value: object, where: str) -> dict[str, str]:
    return {key: str(each) for key, each in _MAPPING(value, where).items()}


def _body(value: object, where: str) -> dict[str, object]:
    found: dict[str, object] = _MAPPING(value, where)
    if (name := next(keys_in_body(found), None)) is not None:
        raise EndpointError(
            f"{where}.{name} holds a key",
            hint="header_env: {HEADER: VARIABLE}, or in the gateway itself, so that it is in no "
            "file",
        )
    return found


def _headers(value: object, where: str) -> dict[str, str]:
    found = _texts(value, where)
    if (name := next(keys_in_headers(found), None)) is not None:
        raise EndpointError(
            f"{where}.{name} holds a key",
            hint=f"key_env: VARIABLE, or header_env: {{{name}: VARIABLE}}, so that it is in no "
            "file",
        )
    return found


def _expected(value: object, where: str) -> dict[str, object]:
    found: dict[str, object] = _MAPPING(value, where)
    if unknown := sorted(found.keys() - EXPECTABLE):
        raise EndpointError(
            f"{where} has unknown fact '{unknown[0]}'",
            hint=f"known: {', '.join(sorted(EXPECTABLE))}",
        )
    return found


def _launch(value: object, where: str) -> Launch:
    env: object = {}
    if isinstance(value, dict):
        if unknown := sorted(set(value) - {"command", "env"}):
            raise EndpointError(
                f"{where} has unknown field '{unknown[0]}'", hint="known: command, env"
            )
        env, value = value.get("env") or {}, value.get("command")
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise EndpointError(f"{where}: {error}", hint="write the command as a list") from error
    if not isinstance(value, list) or not value or not isinstance(env, dict):
        raise EndpointError(f"{where} has no command", hint="launch: vllm serve MODEL --port 8000")
    made = Launch(
        command=tuple(str(word) for word in value),
        env={str(key): str(each) for key, each in env.items()},
    )
    if holds_key(made.command):
        raise EndpointError(
            f"{where} holds a key",
            hint="servers inherit your environment: export VLLM_API_KEY=… before you launch",
        )
    if (name := next(keys_in_environment(made.env), None)) is not None:
        raise EndpointError(
            f"{where}.env.{name} holds a key",
            hint=f"servers inherit your environment: export {name}=… before you launch",
        )
    return made


_BY_TYPE: Final[Mapping[object, Reader]] = {
    str | None: _TEXT,
    bool: _TRUTH,
    int | None: _COUNT,
    float | None: _NUMBER,
    Connections: _POLICY,
    Counting: _COUNTING,
    Mapping[str, str]: _texts,
}
_READERS: Final[Mapping[str, Reader]] = {
    **{
        name: _BY_TYPE[kind]
        for name, kind in get_type_hints(Endpoint).items()
        if kind in _BY_TYPE and name != "profile"
    },
    "url": checked_url,
    "headers": _headers,
    "extra_body": _body,
    "proxy": _proxy,
    "replica_headers": lambda value, where: _NAMES(_listed(value), where),
    "expect": _expected,
    "metrics": lambda value, where: tuple(checked_url(url, where) for url in _listed(value)),
    "gpu_ids": lambda value, where: _GPUS(_listed(value), where),
    "gpu_metrics": checked_url,
    "launch": _launch,
}
FIELDS: Final = frozenset(_READERS)
_NAME: Final = re.compile(r"[^/+=\x00-\x1f\x7f]{1,60}")


def read_file(
    path: Path,
    *,
    model: str | None = None,
    key_env: str | None = None,
    tokenizer: str | None = None,
) -> tuple[Endpoint, ...]:
    """Read the arms of a file. Options given here win over the file's."""
    document = documents.read(path, raises=EndpointError, missing="agentload endpoints init")
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("arms"), dict)
        or not document["arms"]
    ):
        raise EndpointError(f"{path}: 'arms' must map names to endpoints", hint=EXAMPLE_FILE)
    shared = {str(name): value for name, value in document.items() if name != "arms"}
    given: dict[str, object] = {"model": model, "key_env": key_env, "tokenizer": tokenizer}
    given = {name: value for name, value in given.items() if value is not None}
    return tuple(
        _endpoint(f"{path}: arms.{name}", str(name), shared, entry, given)
        for name, entry in document["arms"].items()
    )


def _endpoint(
    where: str, name: str, shared: Mapping[str, object], entry: object, given: Mapping[str, object]
) -> Endpoint:
    if not isinstance(entry, dict):
        raise EndpointError(
            f"{where} must be a mapping, got {type(entry).__name__}",
            hint="url: http://127.0.0.1:8000/v1",
        )
    own = {str(key): value for key, value in entry.items()}
    merged = {**_without_rivals(shared, own), **own}
    merged = {**_without_rivals(merged, given), **given}
    if unknown := sorted(set(merged) - KNOWN):
        raise EndpointError(
            f"{where} has unknown field '{unknown[0]}'", hint=f"known: {', '.join(sorted(KNOWN))}"
        )
    if (machines := merged.pop("machines", None)) is not None:
        return _on_machines(where, name, merged, machines)
    if isinstance(merged.get("url"), list):
        return _replicated(where, name, merged, merged["url"])
    if merged.get("url") is None:
        raise EndpointError(f"{where} has no 'url'", hint="url: http://127.0.0.1:8000/v1")
    for one, other in EXCLUSIVE:
        if merged.get(one) is not None and merged.get(other) is not None:
            raise EndpointError(f"{where} has both '{one}' and '{other}'", hint="leave one out")
    _check_name(name, where)
    values = {
        field: value_of(field, value, f"{where}.{field}")
        for field, value in merged.items()
        if value is not None
    }
    # each value was checked for its field
    return Endpoint(name=name, **values)  # type: ignore[arg-type]


def _on_machines(where: str, name: str, merged: Mapping[str, object], machines: object) -> Endpoint:
    """Read an arm that has a server on several machines: a URL each, or what else differs there."""
    hint = "machines: {m1: http://10.0.0.1:8000/v1, m2: http://10.0.0.2:8000/v1}"
    if not isinstance(machines, dict) or len(machines) < 2:
        raise EndpointError(f"{where}.machines must map two names or more to URLs", hint=hint)
    if "url" in merged or "machine" in merged:
        raise EndpointError(
            f"{where} has both 'machines' and '{'url' if 'url' in merged else 'machine'}'",
            hint="leave one out",
        )
    own = {
        str(machine): {"url": each} if isinstance(each, str) else each
        for machine, each in machines.items()
    }
    places = tuple(
        _endpoint(f"{where}.machines.{each}", name, {**merged, "machine": each}, entry, {})
        for each, entry in own.items()
    )
    return replace(places[0], places=places)


# ANN401: a list of whatever YAML holds
def _replicated(where: str, name: str, merged: Mapping[str, object], listed: Any) -> Endpoint:  # noqa: ANN401
    """Read an arm of several servers at once: a URL each, or what else differs there."""
    own = [each if isinstance(each, dict) else {"url": each} for each in listed]
    if not own or not all(isinstance(each.get("url", ""), str) for each in own):
        raise EndpointError(f"{where}.url must list a URL for each replica", hint=REPLICAS)
    for taken, why in (
        ("machine", "each replica is a machine of its own"),
        ("launch", "replicas run already"),
    ):
        if taken in merged or any(taken in each for each in own):
            raise EndpointError(
                f"{where} has both '{taken}' and a list of URLs", hint=f"leave '{taken}' out: {why}"
            )
    shared = {field: value for field, value in merged.items() if field != "url"}
    made = [
        _endpoint(f"{where}.url[{place}]", name, shared, each, {}) for place, each in enumerate(own)
    ]
    return _of_replicas(made)


def _of_replicas(made: Sequence[Endpoint]) -> Endpoint:
    """Return an arm with its replicas numbered in order; a single endpoint unchanged."""
    numbered = tuple(
        replace(each, machine=replica(number)) for number, each in enumerate(made, start=1)
    )
    return replace(numbered[0], replicas=numbered) if len(made) > 1 else made[0]


def _without_rivals(outer: Mapping[str, object], inner: Mapping[str, object]) -> dict[str, object]:
    """Leave out fields of *outer* whose rival in EXCLUSIVE *inner* has."""
    said = {
        rival
        for pair in EXCLUSIVE
        for name, rival in (pair, pair[::-1])
        if inner.get(name) is not None
    }
    return {name: value for name, value in outer.items() if name not in said}


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """Servers of a shipped profile, to be started for the run."""

    profile: str
    arms: tuple[str, ...]
    """Empty: all that the profile has."""


def read(
    text: str, *, model: str | None = None, key_env: str | None = None, tokenizer: str | None = None
) -> tuple[Endpoint, ...] | Emulated:
    """Read what *text* names; options given here replace those of a file."""
    if text.startswith(EMULATED):
        profile, _, arm = text.removeprefix(EMULATED).partition("/")
        return Emulated(profile=profile, arms=tuple(filter(None, arm.split("+"))))
    if is_arms_file(text):
        file, names = _divided(text)
        return _apart(
            _named(
                file,
                read_file(Path(file), model=model, key_env=key_env, tokenizer=tokenizer),
                names,
            )
        )
    arms: dict[str, list[Endpoint]] = {}
    for position, part in enumerate(text.split(",")):
        found = _inline(part.strip(), position)
        if found.name in arms and not part.strip().startswith(f"{found.name}="):
            raise EndpointError(f"two endpoints are called '{found.name}'", hint=EXAMPLE)
        arms.setdefault(found.name, []).append(
            replace(found, model=model, key_env=key_env, tokenizer=tokenizer)
        )
    return _apart(tuple(map(_of_replicas, arms.values())))


def only(text: str, names: Sequence[str]) -> str:
    """Return *text* cut down to the arms of these names, for `--endpoints`."""
    if text.startswith(EMULATED):
        return f"{text.partition('/')[0]}/{'+'.join(names)}"
    if is_arms_file(text):
        return f"{_divided(text)[0]}/{'+'.join(names)}"
    parts = [part.strip() for part in text.split(",")]
    named = [(_inline(part, position).name, part) for position, part in enumerate(parts)]
    return ",".join(
        part if part.startswith(f"{name}=") else f"{name}={part}"
        for name, part in named
        if name in names
    )


def is_arms_file(text: str) -> bool:
    """Return whether *text* names an arms file, or some arms of one."""
    return "=" not in text and _divided(text)[0].endswith(YAML) and not text.startswith(EMULATED)


def arms_file(text: str) -> Path:
    """Return the arms file that *text* names, or names some arms of."""
    return Path(_divided(text)[0])


def _divided(text: str) -> tuple[str, tuple[str, ...]]:
    """Split `arms.yaml/a+b` into the file and the names of arms; () means all arms."""
    file, _, names = text.rpartition("/")
    some = file.endswith(YAML) and not text.endswith(YAML)
    return (file, tuple(names.split("+"))) if some else (text, ())


def _named(file: str, found: tuple[Endpoint, ...], names: Sequence[str]) -> tuple[Endpoint, ...]:
    known = [each.name for each in found]
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        raise EndpointError(f"{file} has no arm '{missing}'", hint=f"it has: {', '.join(known)}")
    return tuple(each for each in found if not names or each.name in names)


def _inline(part: str, position: int) -> Endpoint:
    name, mark, url = part.partition("=")
    if not mark or "://" in name:
        name, url = (f"arm{position + 1}", part)
    if not url:
        raise EndpointError(
            f"endpoint {position + 1} is empty: '{without_credentials(part)}'", hint=EXAMPLE
        )
    _check_name(name, f"endpoint {position + 1}")
    return Endpoint(name=name, url=checked_url(url, name))


def _check_name(name: str, where: str) -> None:
    """Raise EndpointError for a name that cannot be in a file's name or in `PROFILE/ARM`."""
    if not _NAME.fullmatch(name):
        raise EndpointError(
            f"{where}: an arm cannot be called {name[:60]!r}",
            hint="a name has 1 to 60 characters, none of them '/', '+' or '='",
        )


def _apart(endpoints: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    """Return the endpoints; raise EndpointError if two of them are one server.

    Each would find in the cache what the other left there.
    """
    for one, other in combinations([server for each in endpoints for server in each.servers], 2):
        if all(getattr(one, name) == getattr(other, name) for name in _TELLS_APART):
            if one.name == other.name:
                said = (
                    f"{one.machine} and {other.machine} of {one.name} are one server: "
                    f"{one.shown_url}"
                )
                raise EndpointError(said, hint="give each replica its own URL, or leave one out")
            said = f"{one.name} and {other.name} are one server: {one.shown_url}"
            raise EndpointError(
                said,
                hint=f"--aa {one.name} plays a server twice; else give each arm its own URL, "
                "model or extra_body",
            )
    return endpoints
