"""Every command that a message of the product names is one that can be typed.

Messages are read from the sources: what is filled in when they are made is a word there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from typer.main import get_command

import agentload
from agentload.cli import main

HOUSE = Path(agentload.__file__).parent
COMMAND = re.compile(r"agentload ((?:[a-z][a-z-]* )*)([^;,`]*)")
NAMED = re.compile(r"agentload[ \\\n]")
"""What a source has that names a command, also where the text goes on in its next line."""
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
FILLED = "X"


def messages() -> Iterator[tuple[str, str]]:
    """Yield every text of the package's sources but docstrings, with its place."""
    for path in sorted(HOUSE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not NAMED.search(source):
            continue
        others: set[ast.AST] = set()
        for node in ast.walk(ast.parse(source)):  # a node comes before its parts
            match node:
                case ast.JoinedStr(values=parts):
                    others |= set(parts)
                case ast.Expr(value=docstring):
                    others.add(docstring)
                case _:
                    pass
            if node not in others and isinstance(node, ast.JoinedStr | ast.Constant):
                yield f"{path.relative_to(HOUSE)}:{node.lineno}", _text(node)


def _text(node: ast.JoinedStr | ast.Constant) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else FILLED for part in node.values
    )


@cache
def verbs() -> Any:  # noqa: ANN401  # typer keeps its class to itself
    return get_command(main._app)


def commands() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the place, the words and the options of each command that a message names."""
    for place, text in messages():
        for words, rest in COMMAND.findall(" ".join(text.replace("\\\n", " ").split())):
            options = tuple(OPTION.findall(rest.partition(": ")[0]))
            if words and options:
                yield place, words, options


def lacking(words: str, options: tuple[str, ...]) -> set[str]:
    """Return the options that the verb lacks."""
    context = verbs().make_context("agentload", [], resilient_parsing=True)
    verb = verbs()
    for word in words.split():
        found = verb.get_command(context, word) if hasattr(verb, "get_command") else None
        if found is None:
            break
        verb = found
    known = {name for each in verb.params for name in (*each.opts, *each.secondary_opts)}
    return {*options} - known - {"--help"}


def test_a_command_of_a_message_has_the_options_that_it_is_named_with() -> None:
    found = tuple(commands())
    assert len(found) > 40
    missing = [(place, lacking(words, options)) for place, words, options in found]
    assert not [each for each in missing if each[1]]
