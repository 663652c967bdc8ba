"""Make the reports that `reports/` keeps, one for each verdict:
`python -m tests.report.kept [WORD …]`, which `make reports` calls.

Each is a stop of the demo's tour, played again in virtual time. Its
Markdown is kept without charts, which are in the page beside it.
"""

import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Final

from agentload.cli._tour import STOPS, visit
from agentload.report.record import Measured
from agentload.report.render import render

FOLDER: Final = Path(__file__).parents[2] / "reports"
KEPT: Final[Mapping[str, str]] = {
    "use": "long-chat",
    "avoid": "long-prefill",
    "calibrate": "default-scales",
    "test-further": "few-calls",
    "no-difference": "short-chat",
}
"""The stop of the tour that each verdict comes from."""


def replayed(word: str, place: Path) -> Measured:
    """Play the stop again, as somebody would who is in *place*."""
    stop = next(each for each in STOPS if each.name == KEPT[word])
    with chdir(place):
        return visit(stop, Path("reports") / word)


def files(found: Measured) -> Mapping[str, str]:
    """Return what is kept of a decision, by name."""
    document = found.document
    bare = (replace(group, charts=()) for group in document.groups)
    plain = replace(document, groups=tuple(group for group in bare if group.tables))
    return {
        "decision.md": render(plain, "md"),
        "decision.html": render(document, "html"),
        "decision.json": render(document, "json"),
    }


def main() -> None:
    """Write the reports of these verdicts, or of all."""
    for word in sys.argv[1:] or KEPT:
        with tempfile.TemporaryDirectory() as place:
            kept = files(replayed(word, Path(place)))
        shutil.rmtree(FOLDER / word, ignore_errors=True)
        (FOLDER / word).mkdir()
        for name, text in kept.items():
            (FOLDER / word / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
