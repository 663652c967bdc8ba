"""Read the options that a vLLM server was started with: all but keys and addresses.

They come from its own log, else from the arm's launch command. Keys, passwords and
tokens are recognised by their names or their look, so that none gets into a file.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from agentload.endpoints.endpoint import Launch

MODEL: Final = "--model"
_OF_THE_PLACE: Final = frozenset({"--host", "--port", "--model-tag", "--uds", "--config"})
"""Options that belong to a server's machine: where it listens and reads from."""


def _words_of_serve(words: Sequence[str]) -> tuple[str, ...] | None:
    """Return what follows `vllm serve`; None for any other command."""
    at = next(
        (
            at
            for at, word in enumerate(words)
            if word == "serve" and at and Path(words[at - 1]).name == "vllm"
        ),
        None,
    )
    if at is None or at + 1 == len(words):
        return None
    return tuple(words[at + 1 :])


def arguments(launch: Launch | None, logged: Mapping[str, object]) -> dict[str, list[str]]:
    """Return each option with its values; {} if neither log nor launch shows them."""
    if logged:
        return _without_places(
            {f"--{name.replace('_', '-')}": value for name, value in logged.items()}
        )
    words = None if launch is None else _words_of_serve(launch.command)
    if words is None:
        return {}
    found: dict[str, object] = {MODEL: [words[0]]}
    values: list[str] = []
    for word in words[1:]:
        if not word.startswith("-"):
            values.append(word)
            continue
        option, joined, value = word.partition("=")
        values = [value] if joined else []
        found[option.replace("_", "-") if option.startswith("--") else option] = values
    return _without_places(found)


def _without_places(options: Mapping[str, object]) -> dict[str, list[str]]:
    kept = {
        name: value
        for name, value in options.items()
        if name not in _OF_THE_PLACE and not any(keys_in_body({name: value}))
    }
    words = {name: words_of(value) for name, value in kept.items() if value is not None}
    return {
        (f"--no-{name[2:]}" if options[name] is False else name): each
        for name, each in words.items()
    }


def words_of(value: object) -> list[str]:
    """Return an option's value as words of a command line; true and false need none."""
    match value:
        case bool():
            return []
        case list() | tuple():
            return [
                each if isinstance(each, str) else json.dumps(each, default=str) for each in value
            ]
        case Mapping():
            return [json.dumps(value, default=str)]
        case _:
            return [str(value)]


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
