"""What people read uses one term for one thing: these words have a better one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]

INSTEAD = {
    r"told|tell(s|ing)? of": "reported, shown",
    r"void(s|ed)?": "invalid, invalidates",
    r"spoil(s|t|ed)?": "invalidates",
    r"h(o|e)ld(s|ing)?( (?!against)[\w'-]+,?){0,6} against": "compared with",
    r"st(an|oo)d(s|ing)? for": "means",
    r"stand-ins?": "emulated servers",
    r"(beside|lies)": "next to, with; is",
    r"mend(s|ed|ing)?": "fix",
    r"(go|goes|going|gone|went) on": "resume, continue",
    r"begun|anew|thrice|foretold": "started, again, three times, expected",
    r"be rid of|at the begin": "delete, at the start",
    r"legs?": "part of a run, criterion of a verdict",
    r"(?<![-\w])swap(s|ped)?": "crossover",
    r"so many": "this many",
    r"could not look": "skipped for missing data",
    r"nobody watched": "was not monitored",
    r"not settled": "undecided",
    r"somebody|anybody|whoever": "someone else; name who",
}
TICS = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)

HELP = (
    "agentload/cli",
    "agentload/importers",
    "agentload/exporters",
    "agentload/workloads",
    "agentload/tasks",
    "advisor/rules",
)
"""Rooms whose docstrings are shown as help or as messages."""

STILL: dict[str, set[str]] = {
    "agentload/ask/probes.py": {"held against", "told"},
    "agentload/live/raw.py": {"go on"},
    "agentload/live/target.py": {"mend"},
    "agentload/plugins.py": {"stands for"},
    "agentload/run/known.py": {"somebody"},
    "agentload/run/place.py": {"beside"},
    "agentload/run/play.py": {"going on"},
    "agentload/run/stages.py": {"going on"},
    "agentload/study/kinds.py": {"beside"},
}
"""Words that a file may still have, until it is rewritten."""


def strings(path: Path) -> Iterator[str]:
    """Yield what a module may print; docstrings only where they are help."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    is_help = path.relative_to(HOUSE).as_posix().startswith(HELP)
    docstrings: set[ast.AST] = set()
    for node in ast.walk(tree):  # a node comes before its parts
        if isinstance(node, ast.Expr) and not is_help:
            docstrings.add(node.value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node in docstrings:
                continue
            is_sql = re.search(r"SELECT|FROM |WHERE|JOIN|_ns, ", node.value)
            if " " in node.value.strip() and not is_sql:
                yield node.value


def texts(path: Path) -> Iterator[str]:
    match path.suffix:
        case ".py":
            yield from strings(path)
        case ".j2":
            yield re.sub(
                r"\{[{%#].*?[}%#]\}|<[^>]*>", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL
            )
        case _:
            yield re.sub(r"```.*?```", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def words(path: Path) -> set[str]:
    return {
        found[0].lower()
        for text in texts(path)
        for found in TICS.finditer(re.sub(r"`[^`\n]*`|\]\([^)]*\)", " ", text))
    }


FILES = sorted(
    path
    for pattern in (
        "agentload/**/*.py",
        "agentload/**/*.j2",
        "agentload/**/*.yaml",
        "advisor/**/*.py",
        "*.md",
        "docs/**/*.md",
    )
    for path in HOUSE.glob(pattern)
)


@pytest.mark.parametrize(
    "room", sorted({path.relative_to(HOUSE).parent.as_posix() for path in FILES})
)
def test_people_read_one_term_for_one_thing(room: str) -> None:
    found, folder = {}, HOUSE / room
    for path in FILES:
        if path.parent != folder:
            continue
        name = path.relative_to(HOUSE).as_posix()
        if tics := words(path) - STILL.get(name, set()):
            found[name] = sorted(tics)
    assert not found, f"{found}; instead: {INSTEAD}"


def test_every_exception_is_still_needed() -> None:
    assert {
        name: tics - words(HOUSE / name)
        for name, tics in STILL.items()
        if tics - words(HOUSE / name)
    } == {}


@pytest.mark.parametrize(
    "text",
    [
        "The pair is void.",
        "it was held by us, twice, against that",
        "it goes on",
        "they stand for tokens",
        "--x; swap them",
    ],
)
def test_a_tic_is_found(text: str) -> None:
    assert TICS.search(text)


@pytest.mark.parametrize(
    "text", ["avoid it", "--swap", "a legend", "held for ten seconds", "understand fortune"]
)
def test_other_words_are_left_alone(text: str) -> None:
    assert not TICS.search(text)
