"""Type a verb in this process."""

from __future__ import annotations

import shlex

from agentload.cli import main


def agentload(line: str, *words: object, **options: object) -> None:
    """Run what is typed: a line, more words, and options whose values are no words of a line.

    Raises what the verb raises.
    """
    named = (
        word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)
    )
    assert main.run([*shlex.split(line), *map(str, (*words, *named))]) == 0
