"""Templates place values; they never compute one."""

from pathlib import Path

import pytest
from jinja2 import Environment, nodes

HOUSE = Path(__file__).parents[2]
TEMPLATES = sorted((HOUSE / "agentload").rglob("*.j2"))
ARITHMETIC = (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_computes_nothing(path: Path) -> None:
    parsed = Environment(autoescape=True).parse(path.read_text(encoding="utf-8"))
    assert [found.lineno for found in parsed.find_all(ARITHMETIC)] == []
