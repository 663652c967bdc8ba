"""Make the reports that `reports/` keeps: `python -m tests.report.kept [NAME …]`, which
`make reports` calls.

One for each verdict is a stop of the demo's tour, played again in virtual time. One of servers is
made from the rows that are kept next to it. Their Markdown is kept without charts, which are in
the page beside it.
"""

import sys
import tempfile
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Final

from agentload.cli._tour import STOPS, visit
from agentload.report.advise import advise
from agentload.report.parts import Document
from agentload.report.record import Measured
from agentload.report.render import render
from agentload.store.archive import import_
from agentload.verdict.policy import Setting

FOLDER: Final = Path(__file__).parents[2] / "reports"
KEPT: Final[Mapping[str, str]] = {
    "use": "long-chat",
    "avoid": "long-prefill",
    "calibrate": "default-scales",
    "test-further": "few-calls",
    "no-difference": "short-chat",
}
"""The stop of the tour that each verdict comes from."""
ARCHIVED: Final = ("gpu/llama-8b-chat",)
"""Reports of servers, each with the rows that it is made from."""
ROWS: Final = "run.tar.zst"


def replayed(word: str, place: Path) -> Measured:
    """Play the stop again, as somebody would who is in *place*."""
    stop = next(each for each in STOPS if each.name == KEPT[word])
    with chdir(place):
        return visit(stop, Path("reports") / word)


def imported(name: str, place: Path) -> Document:
    """Decide on the rows that are kept of a run, as somebody would who imports them in *place*."""
    with chdir(place):
        database = Path("run.duckdb")
        run = import_(FOLDER / name / ROWS, database).run_id
        return advise(database, run, setting=Setting())


def files(document: Document) -> Mapping[str, str]:
    """Return what is kept of a decision, by name."""
    bare = (replace(group, charts=()) for group in document.groups)
    plain = replace(document, groups=tuple(group for group in bare if group.tables))
    return {
        "decision.md": render(plain, "md"),
        "decision.html": render(document, "html"),
        "decision.json": render(document, "json"),
    }


def main() -> None:
    """Write the reports of these names, or all."""
    for report in sys.argv[1:] or (*KEPT, *ARCHIVED):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            is_archived = report in ARCHIVED
            found = imported(report, place) if is_archived else replayed(report, place).document
        (FOLDER / report).mkdir(exist_ok=True)
        for name, text in files(found).items():
            (FOLDER / report / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
