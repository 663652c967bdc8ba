"""Tests that run in forks come out as they would in one process."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.forks import LASTING

HOUSE = Path(__file__).parents[2]


def ran(folder: Path, *options: str, **files: str) -> tuple[int, str, list[str]]:
    """Run files of tests in two forks, and return the exit code, the last line and all lines."""
    settings = "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
    (folder / "pytest.ini").write_text(settings, encoding="utf-8")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text, encoding="utf-8")
    command = ("-m", "pytest", "-q", "-p", "tests.forks", "-p", "no:cacheprovider", *options)
    done = subprocess.run(
        [sys.executable, *command, "--forks", "2", folder],
        cwd=HOUSE,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    return done.returncode, lines[-1].partition(" in ")[0], lines


SLOW = "import time\n\ndef test_waits(): time.sleep(0.5)\n"
LONG = """
import time, pathlib, pytest

@pytest.fixture(scope="session")
def began():
    (pathlib.Path(__file__).parent / "began").touch()
    yield
    (pathlib.Path(__file__).parent / "swept").touch()

def test_a(began): time.sleep(60)
"""
FAILS = """
import time, pathlib

def test_a():
    last = time.monotonic() + 60
    while not (pathlib.Path(__file__).parent / "began").exists() and time.monotonic() < last:
        time.sleep(0.01)
    assert 0
"""
OWN = """
import os, pytest
FOLDERS = []

@pytest.fixture(scope="session", autouse=True)
def process(tmp_path_factory):
    made = tmp_path_factory.mktemp("own")
    yield os.getpid()
    assert made.is_dir()

def test_one(process): assert process == os.getpid() != int(os.environ.get("PARENT", 0))
def test_two(process, tmp_path): FOLDERS.append(tmp_path)
def test_three(process): assert len(FOLDERS) == 1
"""


def test_files_run_whole_and_all_come_out_as_in_one_process(tmp_path: Path) -> None:
    bad = "import pytest\ndef test_a():\n    print('said before')\n    assert 1 == 2\n@pytest.mark.skip\ndef test_b(): pass\n"
    code, last, lines = ran(tmp_path, a=OWN, b=OWN, c=bad)
    assert (code, last) == (1, "1 failed, 6 passed, 1 skipped")
    assert "said before" in lines
    assert any(each.startswith("E       assert 1 == 2") for each in lines)


def test_where_a_process_dies_its_tests_have_failed_and_the_others_go_on(tmp_path: Path) -> None:
    dies = "import os\ndef test_a(): pass\ndef test_b(): os._exit(3)\ndef test_c(): pass\n"
    code, last, lines = ran(tmp_path, a=dies, b=SLOW, c=SLOW, d=SLOW)
    # Where nobody's terminal sets the width, as in continuous integration, a line says the reason too.
    lost = [
        each.partition(" - ")[0].rpartition("::")[2] for each in lines if each.startswith("FAILED ")
    ]
    assert code == 1
    assert lost[0] == "test_b"
    assert any("had taken this test ended before it; all ended with [" in each for each in lines)
    # Beside what it was at, the first test of the file that it had taken next.
    assert len(lost) in (2, 3)
    assert last == f"{len(lost)} failed, {6 - len(lost)} passed"


@pytest.mark.slow
def test_the_first_failure_ends_all_where_that_is_asked_for(tmp_path: Path) -> None:
    # A process takes a file more than it is at, so one of three at least is begun elsewhere.
    code, last, _ = ran(tmp_path, "-x", a=FAILS, b=LONG, c=LONG, d=LONG)
    assert (code, last) == (1, "1 failed")
    assert (tmp_path / "swept").exists()


WAITS = """
import time, pathlib
BEGAN = pathlib.Path(__file__).parent / "began"

def test_a():
    last = time.monotonic() + 30
    while not BEGAN.exists() and time.monotonic() < last:
        time.sleep(0.01)
    assert BEGAN.exists()

def test_b(): pass
"""
BEGINS = "import pathlib\ndef test_a(): (pathlib.Path(__file__).parent / 'began').touch()\n"


@pytest.mark.slow
def test_what_takes_longest_begins_first(tmp_path: Path) -> None:
    kept = tmp_path / LASTING
    kept.parent.mkdir()
    kept.write_text("test_last.py::test_a: 9\n", encoding="utf-8")
    code, last, _ = ran(tmp_path, a=WAITS, b=WAITS, last=BEGINS)
    assert (code, last) == (0, "5 passed")


def test_what_is_known_to_take_long_is_there() -> None:
    for name in yaml.safe_load((HOUSE / LASTING).read_text(encoding="utf-8")):
        file, _, test = name.partition("::")
        assert f"def {test}" in (HOUSE / file).read_text(encoding="utf-8"), name


@pytest.mark.slow
def test_what_the_last_test_of_a_process_leaves_open_is_told(tmp_path: Path) -> None:
    leaves = "def test_a():\n    held = [open(__file__)]\n    held.append(held)\n"
    code, last, lines = ran(tmp_path, a=leaves)
    assert (code, last) == (1, "1 passed, 1 error")
    assert any("ResourceWarning: unclosed file" in each for each in lines)
