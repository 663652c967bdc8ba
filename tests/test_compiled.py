"""Compiled modules are loaded all together, or not at all."""

import ast
import importlib
import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import agentload
from agentload import compiled

ROOT = Path(__file__).parent.parent
MODULES = ("agentload.dispatch.naming", "agentload.dispatch.row")


def plant(folder: Path, digest: str, *, suffix: str = EXTENSION_SUFFIXES[0]) -> Path:
    """Make a distribution of compiled modules whose files are empty."""
    package = folder / "agentload_speedups"
    package.mkdir()
    (package / "__init__.py").write_text(f"MODULES = {MODULES!r}\nDIGEST = {digest!r}\n")
    for name in MODULES:
        path = package / f"{name.replace('.', '/')}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def said(program: str, *places: Path, pure: str = "0") -> str:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *places))),
        compiled.PURE: pure,
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_a_digest_follows_every_byte_of_every_module(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name.replace('.', '/')}.py" for name in MODULES]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a = 1\n")
    found = compiled.digest(tmp_path, MODULES)
    for path in paths:
        path.write_text("a = 2\n")
        assert compiled.digest(tmp_path, MODULES) != found
        path.write_text("a = 1\n")
    assert compiled.digest(tmp_path, MODULES) == found != compiled.digest(tmp_path, MODULES[:1])


def test_modules_made_of_other_sources_are_left_alone(tmp_path: Path) -> None:
    place = plant(tmp_path, "0")
    assert (
        said("import agentload; print(agentload.COMPILED)", place)
        == "none: agentload-speedups was made of other sources"
    )
    assert (
        said(
            "from agentload.dispatch.naming import hex_name; print(hex_name('a') == hex_name('a'))",
            place,
        )
        == "True"
    )


def test_modules_made_of_these_sources_are_loaded_from_their_own_folder(tmp_path: Path) -> None:
    place = plant(tmp_path, compiled.digest(ROOT, MODULES))
    assert said("import agentload; print(agentload.COMPILED)", place) == "2 modules"
    failure = said(
        "import agentload.dispatch.naming", place
    )  # nothing is in it: what was to be loaded is named
    assert f"{place}/agentload_speedups/agentload/dispatch/naming." in failure


def test_modules_made_for_another_python_are_left_alone(tmp_path: Path) -> None:
    place = plant(tmp_path, compiled.digest(ROOT, MODULES), suffix=".cpython-27m-darwin.so")
    assert (
        said("import agentload; print(agentload.COMPILED)", place)
        == "none: agentload-speedups was made for another Python"
    )


def test_a_variable_keeps_the_sources(tmp_path: Path) -> None:
    place = plant(tmp_path, compiled.digest(ROOT, MODULES))
    assert (
        said("import agentload; print(agentload.COMPILED)", place, pure="1")
        == "none: AGENTLOAD_PURE=1"
    )
    assert (
        said(
            "from agentload.dispatch.naming import hex_name; print(len(hex_name('a')))",
            place,
            pure="1",
        )
        == "32"
    )


def test_what_is_said_to_be_compiled_is_what_is_loaded() -> None:
    are_compiled = agentload.COMPILED.endswith("modules")
    for name in (
        "agentload.dispatch.sse",
        "agentload.emulator.scheduler",
        "agentload.live.exchange",
        "agentload.virtual.shell",
    ):
        assert str(importlib.import_module(name).__file__).endswith(".py") != are_compiled


@pytest.mark.parametrize("name", ["agentload.dispatch", "agentload.dispatch.sse", "json"])
def test_every_other_module_is_left_to_others(name: str) -> None:
    assert compiled.Finder({MODULES[0]: Path("naming.so")}).find_spec(name) is None


def test_no_struct_stands_in_a_module_that_is_compiled() -> None:
    # mypyc drops the keywords of a class: a struct would be mutable, and refused as a default.
    made = ast.parse((ROOT / "speedups/setup.py").read_text(encoding="utf-8"))
    rooms = next(
        ast.literal_eval(each.value)
        for each in made.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "ROOMS"
    )
    structs = [
        f"{room}.{module}.{each.name}"
        for room, modules in rooms.items()
        for module in modules.split()
        for each in ast.walk(ast.parse((ROOT / f"agentload/{room}/{module}.py").read_text()))
        if isinstance(each, ast.ClassDef) and each.keywords
    ]
    assert structs == []
