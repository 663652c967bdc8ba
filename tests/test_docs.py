"""Documentation leads somewhere: its links, its commands, its example
of a trace, the code that it names, and a line for every room.
"""

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from agentload.tracefile.check import check
from agentload.tracefile.files import read
from tests.cli.test_help import understood

HOUSE = Path(__file__).parents[1]
PAGES = sorted(
    [
        *HOUSE.glob("*.md"),
        *HOUSE.glob("docs/**/*.md"),
        HOUSE / "traces" / "README.md",
        HOUSE / "profiles" / "README.md",
        HOUSE / "benchmarks" / "gpu" / "README.md",
        HOUSE / "reports" / "README.md",
    ]
)
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
    """Return the command lines that stand on lines of
    their own, comments and what follows a pipe left out.
    """
    lines = text.replace("\\\n", "").splitlines()
    found = [
        match[1]
        for line in lines
        if (match := re.match(r"(?:\$ |    )?(agentload [a-z].*)$", line))
    ]
    return [re.split(r"\s+# | \| ", line)[0] for line in found if "…" not in line]


def test_every_command_of_the_pages_is_understood() -> None:
    blocks = [
        (page, block)
        for page in PAGES
        for block in re.findall(
            r"^```(?:\w*)\n(.*?)^```|((?:^    .*\n)+)",
            page.read_text(encoding="utf-8"),
            re.MULTILINE | re.DOTALL,
        )
    ]
    lines = [(page, line) for page, parts in blocks for line in commands("".join(parts))]
    assert len(lines) > 40
    for page, line in lines:
        assert understood(shlex.split(line)[1:]) is not None, f"{page.name}: {line}"


def test_the_example_of_a_trace_can_be_played(tmp_path: Path) -> None:
    found = re.search(
        r"```json\n(.*?)```", (HOUSE / "docs" / "traces.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert found is not None
    (tmp_path / "example.jsonl").write_text(re.sub(r"\n  +", "", found[1]), encoding="utf-8")
    assert check(read(tmp_path / "example.jsonl")).problems == ()


@pytest.mark.slow
@pytest.mark.loopback
def test_the_examples_for_python_run_as_they_are_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = HOUSE / "docs" / "python.md"
    blocks = re.findall(
        r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert {language for language, _ in blocks} == {"python"}
    names: dict[str, object] = {}
    for _, block in blocks:
        exec(compile(block, page.name, "exec"), names)
    assert (tmp_path / "reports" / "today" / "decision.md").is_file()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.stem
)
def test_files_of_code_that_a_page_names_are_there(page: Path) -> None:
    named = set(re.findall(r"\b(?:\w+/)+[a-z_]\w*\.(?:py|sql)\b", page.read_text(encoding="utf-8")))
    assert {
        path
        for path in named
        if not (HOUSE / path).is_file() and not (HOUSE / "agentload" / path).is_file()
    } == set()


def test_modules_and_tests_that_pages_name_are_there() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    modules = set(re.findall(r"python -m ((?:agentload|tests)[.\w]*)", text))
    assert {name for name in modules if importlib.util.find_spec(name) is None} == set()
    tests = set(re.findall(r"`(test_\w+)`", text))
    written = {
        name
        for path in HOUSE.glob("tests/**/*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    assert tests <= written


def is_named(room: str, name: str) -> bool:
    """Return whether a dotted name is there: in a room, next to it, or as its file."""
    module, _, last = name.rpartition(".")
    if list((HOUSE / "agentload" / room).glob(name)):
        return True
    for place in (f"agentload.{room}.{module}", f"agentload.{module}"):
        try:
            return hasattr(importlib.import_module(place), last)
        except ModuleNotFoundError:
            continue
    return False


def test_what_others_call_of_a_room_is_there() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (.*) \|$",
        (HOUSE / "docs" / "architecture.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    called = {
        (room, name)
        for room, what in rows
        for name in re.findall(r"(?<=`)[a-z_]+(?:\.[a-zA-Z_]+)+(?=[`( ])", what)
    }
    assert len(called) > 40
    assert {each for each in called if not is_named(*each)} == set()


def test_the_layers_are_told_as_they_are_checked() -> None:
    contracts = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    told = re.search(
        r"```\n(cli\b.*?)\n```", (HOUSE / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert told is not None
    assert told[1].splitlines() == layers


def test_a_room_that_an_example_names_is_one() -> None:
    texts = [
        path.read_text(encoding="utf-8")
        for path in (*PAGES, HOUSE / "Makefile", HOUSE / "tools" / "mutants.py")
    ]
    named = {room for text in texts for room in re.findall(r"\bROOM=(\w+)", text)}
    assert named
    assert {room for room in named if not (HOUSE / "agentload" / room).is_dir()} == set()


@pytest.mark.parametrize(
    "line", [r"^\| `(\w+)` \|", r"(?:^| {2,})(\w+)/ "], ids=["contract", "tree"]
)
def test_every_room_has_its_line(line: str) -> None:
    rooms = {path.parent.name for path in (HOUSE / "agentload").glob("*/__init__.py")} - {"model"}
    text = (HOUSE / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert rooms <= set(re.findall(line, text, re.MULTILINE))


def test_every_module_between_the_rooms_is_named() -> None:
    modules = {path.stem for path in (HOUSE / "agentload").glob("*.py")} - {"__init__", "__main__"}
    text = (HOUSE / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert {
        module for module in modules if f"`{module}`" not in text and f"{module}.py" not in text
    } == set()


def test_what_is_quoted_of_the_record_of_a_real_server_is_in_it() -> None:
    page = (HOUSE / "docs" / "real-vllm.md").read_text(encoding="utf-8")
    quoted = page[page.index("The [kept report]") : page.index("These figures are of a CPU")]
    record = (HOUSE / "reports/vllm/llama/decision.md").read_text(encoding="utf-8")
    figures = re.findall(r"[+−][\d.]+% \[[^]]+\]", quoted)
    assert len(figures) == 3
    assert [each for each in figures if each not in record] == []


def test_the_readme_is_short_and_its_table_is_that_of_the_kept_report() -> None:
    readme = (HOUSE / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(readme) <= 110
    kept = (HOUSE / "reports" / "use" / "decision.md").read_text(encoding="utf-8").splitlines()
    head = next(at for at, line in enumerate(kept) if line.startswith("|"))
    table = [line for line in kept[head : head + 30] if line.startswith("|")]
    assert len(table) > 5
    assert [line for line in table if line not in readme] == []
