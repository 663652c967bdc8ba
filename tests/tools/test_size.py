from pathlib import Path

import pytest

from tools import lists
from tools.house import HOUSE, PACKAGES, measure, room
from tools.size import LEDGER, LIMITS, ledger, main, other_lines, rewrite

LEDGER_THEN = """| `agentload` | 1 | face |
| `agentload/cli` | 1,002 | verbs |
| `agentload/gone` | 7 | gone |
| `advisor/rules` | 0 | rules |
"""
WIDE = "def told(a, b, c, d, e, f, g, h, i):\n    pass\n\n\nclass Face:\n    pass\n"


def house(root: Path) -> Path:
    for path, text in {
        "agentload/__init__.py": '"""Face."""\n\n\nclass Face:\n    pass\n',
        "agentload/cli/parts/deep.py": "a = 1\nb = 2\n",
        "agentload/cli/main.py": "import sys\n",
        "agentload/ui/page.css": "a {}\n\nb {}\n",
        "advisor/rules/slow.py": WIDE,
        "presets/lab.yaml": "a: 1\n",
        "tests/test_a.py": "a = 1\n",
        "docs/architecture.md": LEDGER_THEN,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def said(root: Path, *arguments: str) -> tuple[int, str]:
    printed: list[str] = []
    return main(arguments, printed.append, root), "".join(printed)


def test_a_room_is_a_folder_of_a_package_or_what_stands_beside_them(tmp_path: Path) -> None:
    parts = measure(house(tmp_path)).rooms()
    assert {name: each.total("lines") for name, each in parts.items()} == {
        "advisor/rules": 6,
        "agentload": 5,
        "agentload/cli": 3,
    }
    assert other_lines(tmp_path, ["agentload", "presets"], ["css", "yaml", "js"]) == {
        "css": 3,
        "yaml": 1,
        "js": 0,
    }


def test_the_rooms_and_the_limits_are_printed(tmp_path: Path) -> None:
    code, text = said(house(tmp_path))
    assert code == 0
    rows = [line.split() for line in text.splitlines()]
    assert ["agentload/cli", "12", "4.00", "0.000", "0", "33.3%", "3", "2"] in rows
    assert ["total", "32", "3.56", "0.500", "3", "7.1%", "14", "4"] in rows
    assert "bare participles                                1 of         0  not met" in text
    assert "syntax nodes                                   32 of   505,000  met" in text
    assert "0 lines are longer than 100 columns" in text
    assert text.count("met\n") == len(LIMITS)


def test_what_passes_a_limit_is_named(tmp_path: Path) -> None:
    assert said(house(tmp_path), "--names") == (
        0,
        "Face: advisor/rules, agentload\ntold in advisor/rules/slow.py\n",
    )
    assert said(tmp_path, "--complex") == (
        0,
        "   1 ways,  9 parameters: told in advisor/rules/slow.py\n",
    )


def test_the_ledger_is_written_for_the_rooms_that_there_are_and_complained_of_where_it_differs(
    tmp_path: Path,
) -> None:
    code, text = said(house(tmp_path), "--ledger")
    assert code == 0
    assert ledger((tmp_path / LEDGER).read_text()) == {
        "agentload": 5,
        "agentload/cli": 12,
        "agentload/gone": 7,
        "advisor/rules": 15,
    }
    assert text.endswith("ledger: agentload/gone has 0 nodes, not 7\n")
    assert said(tmp_path, "--check")[0] == 1
    assert said(tmp_path)[0] == 0


def test_the_ledger_stays_as_it_is_where_nothing_changed() -> None:
    page = "text\n| `advisor` | 1,234 | why |\n"
    assert rewrite(page, {"advisor": 1_234}) == page


def test_the_ledger_names_every_room_and_no_other() -> None:
    shipped = {
        room(path.relative_to(HOUSE))
        for package in PACKAGES
        for path in (HOUSE / package).rglob("*.py")
    }
    assert set(ledger((HOUSE / LEDGER).read_text(encoding="utf-8"))) == shipped


def test_lists_are_written_and_read_again(tmp_path: Path) -> None:
    (house(tmp_path) / lists.FOLDER).mkdir()
    assert said(tmp_path, "--lists") == (0, "")
    assert lists.read(tmp_path, "names") == {
        "classes with several homes": ["Face in advisor/rules", "Face in agentload"],
        "bare participles": ["told in advisor/rules/slow.py"],
    }
    assert lists.read(tmp_path, "density") == {
        "rooms of dense lines": [],
        "functions with many ways through": [],
        "functions with many parameters": ["told in advisor/rules/slow.py"],
    }


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        ({"a": ["x", "y"], "b": ["z"]}, {}),
        ({"a": ["y"], "b": ["z"]}, {"a": ["x"]}),
        ({"a": ["x", "y"]}, {"b": ["z"]}),
    ],
)
def test_an_entry_that_is_missing_elsewhere_is_found(
    here: dict[str, list[str]], expected: dict[str, list[str]]
) -> None:
    assert lists.missing({"a": ["x", "y"], "b": ["z"]}, here) == expected
