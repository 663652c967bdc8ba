"""The kept reports are what their commands make today: one for each verdict, each small."""

import json
from pathlib import Path

import pytest

from tests.report.kept import FOLDER, KEPT, files, replayed
from tests.report.test_agreement import disagreeing

FEW = ("test-further",)


def alike(name: str, text: str) -> object:
    """Return what must be equal of a file: its bytes, but for digits that hang on the processor.

    Sums are added up in other orders by other processors, which shows in the last of 17 digits.
    """
    if not name.endswith(".json"):
        return text
    return json.loads(text, parse_float=lambda digits: float(f"{float(digits):.9g}"))


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
    for name, text in files(found).items():
        kept = (FOLDER / word / name).read_text(encoding="utf-8")
        assert alike(name, text) == alike(name, kept), (
            f"{word}/{name} differs: make reports, and look at what changed"
        )


@pytest.mark.parametrize("word", KEPT)
def test_a_kept_report_is_small(word: str) -> None:
    assert sum(each.stat().st_size for each in (FOLDER / word).iterdir()) < 400_000
