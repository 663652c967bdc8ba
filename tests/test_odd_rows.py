"""Whatever a run's rows hold, everything that shows a run shows it:
no traceback, no sentence that is nonsense, no verdict from nothing.
"""

from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Never
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.cli import main
from agentload.errors import AgentloadError
from agentload.evidence.summary import summarise
from agentload.model.rows import CallRow, Row
from agentload.report.advise import advise, compare
from agentload.report.formats import txt
from agentload.report.parts import Document
from agentload.report.render import USUAL, formats, write
from agentload.verdict.policy import Setting
from agentload.watch.history import Detail, Execution
from agentload.watch.judge import changes_since, fault
from agentload.watch.notices import junit
from tests import odd
from tests.report.formats.test_html import Tree
from tests.ui.site import site
from tests.watch.simulated import JOB

QUICK: Final = (
    "every answer in one read",
    "one arm failed",
    "identical",
    "a name of all kinds",
    "no time at all",
    "no time on one arm",
)
NOTHING_VALID: Final = frozenset(
    {
        "all failed",
        "one arm failed",
        "one arm timed out",
        "one arm cancelled",
        "one arm never sent",
        "one arm never played",
    }
    | {
        "one arm's blocks invalid",
        "all blocks invalid",
        "no token",
        "no token on one arm",
        "no calls",
        "no blocks",
        "no block ended",
    }
)
"""What leaves the second arm without one call that counts."""
NO_WORD: Final = re.compile(
    r"(?<![\w.-])(?:[-−+]?(?:nan|NaN|inf|Infinity)|None(?! of)|[-−]0(?:\.0+)?)(?![\w.-])"
)
DRAWN: Final = frozenset(
    {
        "d",
        "points",
        "x",
        "y",
        "x1",
        "x2",
        "y1",
        "y2",
        "cx",
        "cy",
        "r",
        "width",
        "height",
        "style",
        "transform",
    }
)


class Page(Tree):
    """A page whose elements are closed as they were opened, with
    the words that a reader sees, and the numbers that are drawn.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        self.seen += [
            re.sub(r"[ ,;:()]+", " ", value) for name, value in attrs if name in DRAWN and value
        ]

    def handle_data(self, data: str) -> None:
        if self.open[-1:] not in (["script"], ["style"]):
            self.seen.append(data)


def seen(name: str, text: str) -> str:
    """Return what of a text is shown; raise if it is no page, or no JSON."""
    if name.endswith((".html", ".svg")):
        page = Page()
        page.feed(text)
        page.close()
        assert page.open == [], name
        return "\n".join(page.seen)
    if name.endswith(".json"):
        json.loads(text, parse_constant=_refused)
    return text


def _refused(constant: str) -> Never:
    raise AssertionError(f"{constant} is no JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A database with an odd run `odd`, and one from `before`."""

    database: Path
    rows: tuple[Row, ...]

    def document(self) -> Document | None:
        """Decide on the odd run, where that can be done."""
        try:
            return advise(self.database, "odd", setting=Setting())
        except AgentloadError as error:
            check("refusal", f"{error.message} {error.hint}")
            return None

    def report(
        self, document: Document, *, kinds: Sequence[str] = USUAL
    ) -> Iterator[tuple[str, str]]:
        """Yield the files of a report."""
        yield "decision.txt", txt.text(document)
        for path in write(document, self.database.parent / "report", formats=kinds):
            yield path.name, path.read_text(encoding="utf-8")

    def others(self) -> Iterator[tuple[str, str]]:
        """Yield all else that the verbs and the watch say, and a refusal in its place."""
        yield "show", self._printed("show", "--run", "odd")
        yield "show.json", self._printed("show", "--run", "odd", "--json")
        yield "list", self._printed("list")
        try:
            yield from self.report(
                compare(self.database, "before", "odd", setting=Setting()), kinds=formats()
            )
            yield "fault", fault(self.database, "odd", job=JOB) or ""
            yield from self._watched()
        except AgentloadError as error:
            yield "refusal", f"{error.message} {error.hint}"

    def _printed(self, *words: str) -> str:
        with redirect_stdout(io.StringIO()) as said:
            main.run(["runs", words[0], str(self.database), *words[1:]])
        return said.getvalue()

    def _watched(self) -> Iterator[tuple[str, str]]:
        changes, why = changes_since(self.database, "odd", "before", arms=[odd.FIRST], job=JOB)
        detail = Detail(reference="before", changes=changes, reason=why)
        done = Execution(
            job="nightly",
            started_ns=1,
            ended_ns=2,
            outcome="done" if why is None else "void",
            run_id="odd",
            detail=detail,
        )
        yield "junit", junit("nightly", done, ())

    async def pages(self) -> Iterator[tuple[str, str]]:
        """Return the pages of the run."""
        base, found = f"/db/{self.database.stem}", []
        paths = [
            "/",
            "/runs",
            "/runs/odd",
            "/runs/odd/live",
            "/decisions",
            "/comparisons",
            "/compare/before/odd",
        ]
        for call in [row for row in self.rows if isinstance(row, CallRow)][-1:]:
            session, request = (
                quote(call.session, safe=""),
                quote(f"odd {call.request_id}", safe=""),
            )
            paths += [
                f"/runs/odd/pairs/{call.pair}",
                f"/runs/odd/pairs/{call.pair}/sessions/{session}",
                f"/runs/odd/calls/{request}",
            ]
        async with site(self.database) as client:
            for path in paths:
                answer = await client.get(base + path)
                text = await answer.text()
                assert answer.status in {200, 404, 422}, (path, text)
                found.append((f"{path}.html", text))
        return iter(found)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Row, ...]:
    return odd.played(tmp_path_factory.mktemp("played") / "x.duckdb")


@pytest.fixture(scope="module")
def before(rows: tuple[Row, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    database = tmp_path_factory.mktemp("before") / "x.duckdb"
    odd.stored(odd.named(rows, "before"), database)
    return database


def beside(before: Path, folder: Path, rows: tuple[Row, ...]) -> Looked:
    """Store an odd run beside the one that it was made of."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(before, folder / "x.duckdb")
    odd.stored(odd.named(rows, "odd"), folder / "x.duckdb")
    return Looked(database=folder / "x.duckdb", rows=rows)


def check(name: str, text: str) -> None:
    """Refuse what no reader should see."""
    shown = seen(name, text)
    found = NO_WORD.search(shown)
    assert found is None, (name, shown[max(0, found.start() - 200) : found.end() + 100])


@pytest.mark.parametrize("name", QUICK)
def test_an_odd_run_is_reported_and_decides_nothing_that_it_does_not_hold(
    name: str, rows: tuple[Row, ...], before: Path, tmp_path: Path
) -> None:
    judged(beside(before, tmp_path / "odd", tuple(odd.ODD[name](rows))), name)


@pytest.mark.slow
@pytest.mark.loopback
@pytest.mark.parametrize("name", odd.ODD)
async def test_an_odd_run_is_shown_everywhere(
    name: str, rows: tuple[Row, ...], before: Path, tmp_path: Path
) -> None:
    looked = beside(before, tmp_path / "odd", tuple(odd.ODD[name](rows)))
    judged(looked, name)
    for where, text in (*looked.others(), *await looked.pages()):
        check(where, text)


@pytest.mark.slow
@settings(max_examples=25)
@given(names=st.lists(st.sampled_from(sorted(odd.ODD)), min_size=2, max_size=4, unique=True))
def test_oddities_may_come_together(
    names: list[str], rows: tuple[Row, ...], before: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    looked = beside(
        before,
        tmp_path_factory.getbasetemp() / "together",
        tuple(odd.both(*(odd.ODD[name] for name in names))(rows)),
    )
    judged(looked)
    for where, text in looked.others():
        check(where, text)


def judged(looked: Looked, name: str = "") -> None:
    """Check the report of an odd run, and that it decides nothing without evidence."""
    check("summary", summarise(looked.database, "odd").text())
    document = looked.document()
    if document is None:
        return
    for where, text in looked.report(document):
        check(where, text)
    verdicts = {each.verdict for each in (*document.decision.server, *document.decision.classes)}
    assert name not in NOTHING_VALID or "use" not in verdicts
    assert not name.startswith("identical") or verdicts == {"no difference"}
