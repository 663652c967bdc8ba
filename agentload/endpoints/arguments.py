"""Read the options that a vLLM server was started with: all but keys and addresses.

They come from its own log, else from the arm's launch command.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agentload.endpoints.endpoint import Launch
from agentload.endpoints.keys import keys_in_body

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
