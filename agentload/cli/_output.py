"""Print results for machines."""

import sys

import msgspec


def print_json(value: object) -> None:
    """Print a value as indented JSON: dataclasses by field, what is not a number (NaN, infinity) as null.

    A verb with `--json` prints one document with it and nothing else to stdout.
    """
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode() + "\n")
