"""What the command line did when it was recorded, it does today."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from tests.recorded.record import (
    PROCESSES,
    RECORDINGS,
    cases,
    difference,
    names,
    recording,
    text_of,
)
from tests.recorded.surface import LISTS

QUICK = ("help", *LISTS)
QUIET = "--quiet/-q"
"""Every verb has it, and means the same."""
SHELLS = {"--install-completion", "--show-completion"}
"""They read which shell called them, and write into its start-up file."""


@pytest.mark.parametrize("name", QUICK)
def test_help_texts_and_lists_are_what_was_recorded(name: str) -> None:
    assert difference(name, text_of(name)) == "", f"make record ARGS='--write --only {name}'"


def test_every_option_of_every_verb_is_in_a_case() -> None:
    typed = [
        " ".join(each["run"].split()) if isinstance(each, dict) else each
        for case in cases().values()
        for each in case["commands"]
    ]
    verbs = yaml.safe_load(recording("verbs").read_text(encoding="utf-8"))
    missing = [
        f"{verb} {option}"
        for verb, parameters in verbs.items()
        for option in (each["name"] for each in parameters)
        if option.startswith("--")
        and option not in SHELLS
        and not any(
            line.startswith("" if option == QUIET else verb) and _holds(line, option)
            for line in typed
        )
    ]
    assert missing == []


def _holds(line: str, option: str) -> bool:
    return any(each in line.split() for each in option.split("/"))


def test_every_case_has_its_recording_and_every_recording_its_case() -> None:
    assert sorted(path.stem for path in RECORDINGS.iterdir()) == sorted(names())


@pytest.mark.recorded
@pytest.mark.loopback
def test_command_lines_do_what_was_recorded() -> None:
    with ThreadPoolExecutor(PROCESSES) as pool:
        found = pool.map(lambda name: difference(name, text_of(name)), cases())
        assert "\n\n".join(each for each in found if each) == ""
