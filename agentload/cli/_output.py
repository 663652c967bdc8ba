"""Print results for machines, and what is only for somebody who watches."""

import sys

import msgspec


def print_json(value: object) -> None:
    """Print a value as indented JSON: dataclasses by field, what is not a number (NaN, infinity) as null.

    A verb with `--json` prints one document with it and nothing else to stdout.
    """
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode() + "\n")


def transient(line: str) -> None:
    """Draw a line of progress on a terminal in the place of the one before; an empty one takes it away."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
