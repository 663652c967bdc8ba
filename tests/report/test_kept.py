"""The kept reports are what their commands, or their rows, make today, and each is small."""

import json
from pathlib import Path

import pytest

from agentload.report.parts import Document
from tests.report.kept import ARCHIVED, FOLDER, KEPT, files, imported, replayed
from tests.report.test_agreement import disagreeing

FEW = ("test-further",)


def alike(name: str, text: str) -> object:
    """Return what must be equal of a file: its bytes, but for digits that hang on the processor.

    Sums are added up in other orders by other processors, which shows in the last of 17 digits.
    """
    if not name.endswith(".json"):
        return text
    return json.loads(text, parse_float=lambda digits: float(f"{float(digits):.9g}"))


def changed(report: str, document: Document) -> list[str]:
    """Return the files of a kept report that `make reports` would write otherwise."""
    return [
        f"{report}/{name}"
        for name, text in files(document).items()
        if alike(name, text) != alike(name, (FOLDER / report / name).read_text(encoding="utf-8"))
    ]


@pytest.mark.parametrize(
    "word", [pytest.param(word, marks=() if word in FEW else pytest.mark.slow) for word in KEPT]
)
def test_a_kept_report_is_made_again_and_decides_what_its_folder_says(
    word: str, tmp_path: Path
) -> None:
    found = replayed(word, tmp_path)
    (verdict,) = found.document.decision.server
    assert verdict.verdict.replace(" ", "-") == word
    assert [*disagreeing(found.document)] == []
    assert changed(word, found.document) == []


@pytest.mark.parametrize("name", ARCHIVED)
def test_a_report_of_servers_is_made_again_from_its_rows(name: str, tmp_path: Path) -> None:
    found = imported(name, tmp_path)
    assert [*disagreeing(found)] == []
    assert changed(name, found) == []


@pytest.mark.parametrize("report", [*KEPT, *ARCHIVED])
def test_a_kept_report_is_small(report: str) -> None:
    assert sum(each.stat().st_size for each in (FOLDER / report).iterdir()) < 600_000
