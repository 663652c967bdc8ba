"""Recognise keys, passwords and tokens by their names or their look: none may get into a file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_LOOKS: Final = re.compile(r"\b(sk-|hf_|Bearer\s)\S{8,}")
_VARIABLE: Final = re.compile(
    r"(?:^|[-_])(?:api)?(?:key|token|secret|password|passwd|credentials?)$", re.IGNORECASE
)
# Fields of a body and options of a command are called
# many things: cache_key and max-token are no secrets.
_NAMES: Final = (
    r"(?:api|access|auth|admin|master|private)[-_]?key"
    r"|(?:api|access|auth|admin|bearer|hf)[-_]?token"
    r"|secret|password|passwd|credentials?"
)
_FIELD: Final = re.compile(rf"(?:.*[-_.])?(?:{_NAMES})|key|token|authorization", re.IGNORECASE)
# The value is neither a shell variable nor the option that follows.
_OPTION: Final = re.compile(
    rf"(?<!\S)['\"]?--?(?:(?:[\w.-]*[-_.])?(?:{_NAMES})|token)[ =]+['\"]?[^-$'\"\s]", re.IGNORECASE
)
_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie"})
_SWITCH: Final = frozenset({"", "0", "1", "true", "false", "yes", "no", "on", "off", "none"})


def looks_like_key(text: str) -> bool:
    """Return whether a text has a word with a beginning that only keys have."""
    return _LOOKS.search(text) is not None


def holds_key(command: Sequence[str]) -> bool:
    """Return whether a command line gives a key to its program."""
    line = " ".join(command)
    return looks_like_key(line) or _OPTION.search(line) is not None


def keys_in_environment(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the variables whose value is a key."""
    for name, value in variables.items():
        if looks_like_key(value) or (_VARIABLE.search(name) and value.lower() not in _SWITCH):
            yield name


def keys_in_headers(headers: Mapping[str, str]) -> Iterator[str]:
    """Yield the headers whose value is a key; one with `{session}` in it is for a router."""
    for name, value in headers.items():
        if (
            looks_like_key(value)
            or name.lower() in _HEADERS
            or (_VARIABLE.search(name) and "{session}" not in value)
        ):
            yield name


def keys_in_body(value: object, name: str = "") -> Iterator[str]:
    """Yield the fields of a body, at any depth, whose value is a key."""
    match value:
        case Mapping():
            for own, each in value.items():
                yield from keys_in_body(each, f"{name}.{own}" if name else str(own))
        case list() | tuple():
            for each in value:
                yield from keys_in_body(each, name)
        case str():
            if looks_like_key(value) or (
                _FIELD.fullmatch(name.rpartition(".")[2]) and value.lower() not in _SWITCH
            ):
                yield name
        case _:
            pass
