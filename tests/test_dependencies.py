"""What the packages import is declared, pinned and allowed."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
# Distributions whose import name differs from their own.
IMPORT_NAMES = {
    "import_linter": "importlinter",
    "pillow": "PIL",
    "pytest_asyncio": "pytest_asyncio",
    "pyyaml": "yaml",
}


def import_names(requirements: Iterable[str]) -> set[str]:
    names = (
        re.split(r"[<>=\[; ]", requirement)[0].lower().replace("-", "_")
        for requirement in requirements
    )
    return {IMPORT_NAMES.get(name, name) for name in names}


def imports(folder: str) -> Iterator[tuple[str, str]]:
    """Yield each file of a folder with the top-level name of each absolute import in it."""
    for file in sorted((ROOT / folder).rglob("*.py")):
        for node in statements(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                yield from (
                    (str(file.relative_to(ROOT)), alias.name.split(".")[0]) for alias in node.names
                )
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                yield str(file.relative_to(ROOT)), node.module.split(".")[0]


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a tree; no expression imports anything."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield node
            yield from statements(node)


def strays(folder: str, allowed: set[str]) -> set[tuple[str, str]]:
    known = allowed | sys.stdlib_module_names
    return {(file, name) for file, name in imports(folder) if name not in known}


CORE = import_names(PROJECT["dependencies"])
EXTRAS = {
    name: import_names(requirements)
    for name, requirements in PROJECT["optional-dependencies"].items()
}


def test_the_advisor_imports_numpy_scipy_and_the_standard_library_alone() -> None:
    assert strays("advisor", {"advisor", "numpy", "scipy"}) == set()


def test_what_agentload_imports_is_declared() -> None:
    optional = set[str]().union(*(names for extra, names in EXTRAS.items() if extra != "dev"))
    assert strays("agentload", {"agentload", "advisor"} | CORE | optional) == set()


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["tests", "tools"])
def test_what_tests_and_tools_import_is_declared(folder: str) -> None:
    own = {"agentload", "advisor", "benchmarks", "tests", "tools"}
    assert strays(folder, own | CORE.union(*EXTRAS.values())) == set()


def test_scipy_is_loaded_by_what_computes_with_it_and_by_no_import() -> None:
    """`import scipy` loads its parts when they are
    first touched; half of a verb's start was theirs.
    """
    early = re.compile(r"^(\s*from scipy\b|\s*import scipy\.|[^\s#].*\bscipy\.[a-z])", re.MULTILINE)
    files = [file for folder in ("advisor", "agentload") for file in (ROOT / folder).rglob("*.py")]
    assert [file.name for file in files if early.search(file.read_text())] == []


def test_the_advisors_contract_names_every_dependency_that_it_must_not_import() -> None:
    contracts = {
        contract["id"]: contract for contract in PYPROJECT["tool"]["importlinter"]["contracts"]
    }
    shipped = CORE.union(*(names for extra, names in EXTRAS.items() if extra != "dev"))
    assert set(contracts["advisor"]["forbidden_modules"]) == {"agentload"} | shipped - {
        "numpy",
        "scipy",
    }


def test_constraints_pin_every_declared_dependency_and_name_no_place() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9._-]+==[a-z0-9.!+]+", pin)] == []
    assert CORE.union(*EXTRAS.values()) - import_names(pins) == set()
