"""Documentation leads somewhere: its links, its commands, its example of a trace, and a line for every room."""

import re
import shlex
from pathlib import Path

import pytest

from agentload.tracefile.check import check
from agentload.tracefile.files import read
from tests.cli.test_help import understood

HOUSE = Path(__file__).parents[1]
PAGES = sorted([*HOUSE.glob("*.md"), *HOUSE.glob("docs/**/*.md"), HOUSE / "traces" / "README.md", HOUSE / "profiles" / "README.md"])
LEFT_BEHIND = HOUSE / "reports"
"""Written by what a page describes."""


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_files_and_headings_that_there_are(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists() or target.is_relative_to(LEFT_BEHIND), link
        assert not anchor or anchor in anchors(target), link


def commands(text: str) -> list[str]:
    """Return the command lines that stand on lines of their own, comments and what follows a pipe left out."""
    lines = text.replace("\\\n", "").splitlines()
    found = [match[1] for line in lines if (match := re.match(r"(?:\$ |    )?(agentload [a-z].*)$", line))]
    return [re.split(r"\s+# | \| ", line)[0] for line in found if "…" not in line]


def test_every_command_of_the_pages_is_understood() -> None:
    blocks = [
        (page, block)
        for page in PAGES
        for block in re.findall(r"^```(?:\w*)\n(.*?)^```|((?:^    .*\n)+)", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    ]
    lines = [(page, line) for page, parts in blocks for line in commands("".join(parts))]
    assert len(lines) > 40
    for page, line in lines:
        assert understood(shlex.split(line)[1:]) is not None, f"{page.name}: {line}"


def test_the_example_of_a_trace_can_be_played(tmp_path: Path) -> None:
    found = re.search(r"```json\n(.*?)```", (HOUSE / "docs" / "traces.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    (tmp_path / "example.jsonl").write_text(re.sub(r"\n  +", "", found[1]), encoding="utf-8")
    assert check(read(tmp_path / "example.jsonl")).problems == ()


@pytest.mark.loopback
def test_the_examples_for_python_run_as_they_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = HOUSE / "docs" / "python.md"
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert {language for language, _ in blocks} == {"python"}
    names: dict[str, object] = {}
    for _, block in blocks:
        exec(compile(block, page.name, "exec"), names)
    assert (tmp_path / "reports" / "today" / "decision.md").is_file()


@pytest.mark.parametrize(("page", "line"), [("docs/architecture.md", r"^\| `(\w+)` \|"), ("README.md", r"(?:^| {2,})(\w+)/ ")])
def test_every_room_has_its_line(page: str, line: str) -> None:
    rooms = {path.parent.name for path in (HOUSE / "agentload").glob("*/__init__.py")} - {"model"}
    assert rooms <= set(re.findall(line, (HOUSE / page).read_text(encoding="utf-8"), re.MULTILINE))
