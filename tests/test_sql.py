"""Only the store names tables: other rooms read rows by their type, and query the views."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = Path(__file__).parent.parent / "agentload"
TABLES = re.findall(
    r"CREATE TABLE (\w+)", (HOUSE / "store" / "schema.sql").read_text(encoding="utf-8")
)
NAMED = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE)\s+\(?\s*({'|'.join(TABLES)})\b")
SPOKEN = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE)\b")
"""What a source with SQL has; parsing all others takes long."""


def spoken(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every string; what an f-string puts in is left out."""
    if not SPOKEN.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


@pytest.mark.parametrize(
    "room",
    sorted(
        path.name
        for path in HOUSE.iterdir()
        if path.is_dir() and path.name not in {"store", "__pycache__"}
    ),
)
def test_no_room_but_the_store_says_sql_on_a_table(room: str) -> None:
    found = [
        f"{path.relative_to(HOUSE)}:{line}: {said[1]}"
        for path in sorted((HOUSE / room).rglob("*.py"))
        for line, text in spoken(path.read_text(encoding="utf-8"))
        if (said := NAMED.search(text))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "tables"),
    [
        ('X = "SELECT a FROM calls_row"', ["calls_row"]),
        ('X = f"""\nSELECT {a}\nFROM turns AS t JOIN arms AS a USING (arm)"""', ["arms"]),
        ('X = "INSERT INTO runs VALUES (1)"', ["runs"]),
        ('X = "SELECT a FROM turns JOIN plays USING (arm)"', []),
        ("# FROM runs", []),
    ],
)
def test_a_table_is_found_in_any_string(source: str, tables: list[str]) -> None:
    assert [said[1] for _, text in spoken(source) if (said := NAMED.search(text))] == tables
