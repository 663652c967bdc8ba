from pathlib import Path

from tests.house.size import (
    HOUSE,
    LEDGER,
    PACKAGES,
    Size,
    ledger,
    lines,
    main,
    rewritten,
    room,
    rooms,
    size,
)

MODULE = '''"""Two things."""

from os import (
    path,
)
import sys

A = 1
'''


LEDGER_THEN = """| `agentload` | 1 | face |
| `agentload/cli` | 1,002 | verbs |
| `agentload/gone` | 7 | gone |
| `advisor/rules` | 0 | rules |
"""


def house(root: Path) -> Path:
    for path, text in {
        "agentload/__init__.py": '"""Face."""\n',
        "agentload/cli/parts/deep.py": "a = 1\nb = 2\n",
        "agentload/cli/main.py": "import sys\n",
        "agentload/ui/page.css": "a {}\n\nb {}\n",
        "advisor/rules/slow.py": "",
        "presets/lab.yaml": "a: 1\n",
        "tests/test_a.py": "a = 1\n",
        "docs/architecture.md": LEDGER_THEN,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_a_module_is_measured_in_lines_nodes_statements_and_lines_of_imports() -> None:
    # The module; a docstring's expression and constant; two imports
    # with an alias each; an assignment, its name, context and constant.
    assert size(MODULE) == Size(lines=8, modules=1, nodes=11, statements=4, imports=4)
    assert size(MODULE).share == 0.5


def test_a_room_is_a_folder_of_a_package_or_what_stands_beside_them(tmp_path: Path) -> None:
    assert rooms(house(tmp_path)) == {
        "advisor/rules": Size(lines=0, modules=1, nodes=1),
        "agentload": Size(lines=1, modules=1, nodes=3, statements=1),
        "agentload/cli": Size(lines=3, modules=2, nodes=12, statements=3, imports=1),
    }
    assert lines(tmp_path, ["agentload", "presets"], ["css", "yaml", "js"]) == {
        "css": 3,
        "yaml": 1,
        "js": 0,
    }


def test_the_ledger_is_written_for_the_rooms_that_there_are_and_complained_of_where_it_differs(
    tmp_path: Path,
) -> None:
    printed: list[str] = []
    assert main(["--ledger"], printed.append, house(tmp_path)) == 0
    assert ledger((tmp_path / LEDGER).read_text()) == {
        "agentload": 1,
        "agentload/cli": 3,
        "agentload/gone": 7,
        "advisor/rules": 0,
    }
    assert printed[-1] == "ledger: agentload/gone has 0 lines, not 7\n"
    assert main(["--check"], printed.append, tmp_path) == 1
    assert main([], printed.append, tmp_path) == 0


def test_the_ledger_stays_as_it_is_where_nothing_changed() -> None:
    page = "text\n| `advisor` | 1,234 | why |\n"
    assert rewritten(page, {"advisor": Size(lines=1_234)}) == page


def test_the_ledger_names_every_room_and_no_other() -> None:
    shipped = {
        room(path.relative_to(HOUSE))
        for package in PACKAGES
        for path in (HOUSE / package).rglob("*.py")
    }
    assert set(ledger((HOUSE / LEDGER).read_text(encoding="utf-8"))) == shipped
