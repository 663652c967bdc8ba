"""Keep what exceeds a limit today in lists that may only shrink.

An entry of a list is allowed; anything else beyond a limit fails a test of tests/house.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from tools.house import DENSITY, Part

FOLDER: Final = Path("tests/house")
REMAKE: Final = "make size ARGS=--lists"
HEAD: Final = f"""\
# What may still be as it is: nothing is added here, and `{REMAKE}` takes off what is mended.
"""
WIDTH: Final = 200

Lists = Mapping[str, list[str]]
"""Entries by heading."""


def lists(whole: Part) -> dict[str, Lists]:
    """Return the lists as they would be today, by the name of their file."""
    return {
        "names": {
            "classes with several homes": [
                f"{name} in {room}" for name, rooms in whole.homes().items() for room in rooms
            ],
            "bare participles": whole.participles(),
        },
        "density": {
            "rooms of dense lines": [
                name for name, each in whole.rooms().items() if each.density > DENSITY
            ],
            "functions with many ways through": whole.branching_functions(),
            "functions with many parameters": whole.wide_functions(),
        },
    }


def read(house: Path, name: str) -> Lists:
    """Read the lists of one file."""
    found: Lists = yaml.safe_load((house / FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


def write(house: Path, name: str, now: Lists) -> None:
    """Write the lists of one file."""
    text = yaml.safe_dump(dict(now), sort_keys=False, width=WIDTH)
    (house / FOLDER / f"{name}.yaml").write_text(HEAD + text, encoding="utf-8")


def missing(there: Lists, here: Lists) -> dict[str, list[str]]:
    """Return the entries of *there* that are missing *here*."""
    found = {
        heading: [each for each in entries if each not in here.get(heading, ())]
        for heading, entries in there.items()
    }
    return {heading: entries for heading, entries in found.items() if entries}
