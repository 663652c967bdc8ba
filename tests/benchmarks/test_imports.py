import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").rglob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_benchmark_finds_what_it_imports_of_the_product(script: Path) -> None:
    """Type checks leave scripts out, so a name that moved is missed only when one is run."""
    imports = [
        node
        for node in ast.walk(ast.parse(script.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]
    for node in imports:
        module = node.module or ""
        if module.partition(".")[0] in {"agentload", "advisor"}:
            for each in node.names:
                assert (
                    hasattr(import_module(module), each.name)
                    or find_spec(f"{module}.{each.name}") is not None
                ), (module, each.name)
