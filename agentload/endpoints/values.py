"""Read the fields of an endpoint, each by its type or by a reader of its own."""

import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Meta

from agentload.dispatch.counting import Counting
from agentload.endpoints.endpoint import Connections, Endpoint, Launch, checked_url, without_user
from agentload.endpoints.facts import EXPECTABLE
from agentload.endpoints.keys import holds_key, keys_in_body, keys_in_environment, keys_in_headers
from agentload.errors import EndpointError
from agentload.model.record import Record

Text: TypeAlias = str | int | float
"""What YAML makes of a text without quotes."""
Reader: TypeAlias = Callable[[object, str], object]
"""Takes a value and its place in the file; raises EndpointError for a wrong value."""
Gpu: TypeAlias = Annotated[int, Meta(ge=0)] | Annotated[str, Meta(pattern=r"^\d+(/\d+)?$")]


class _Kind(Record, kw_only=False):
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
    if isinstance(value, list):
        return value
    return [value]


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
        env = value.get("env") or {}
        value = value.get("command")
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise EndpointError(f"{where}: {error}", hint="write the command as a list") from error
    if not isinstance(value, list) or not value or not isinstance(env, dict):
        raise EndpointError(f"{where} has no command", hint="launch: vllm serve MODEL --port 8000")
    made = Launch(
        command=tuple(map(str, value)), env={str(key): str(each) for key, each in env.items()}
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
