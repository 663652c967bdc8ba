"""Live tests play over both paths: sockets read by the interpreter, and by the thread."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentload.compiled import PURE
from agentload.live import reader
from agentload.live.hub import ReadPath

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def library_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library of the thread, built of the source that is here."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("no C compiler, or no Linux")
    folder = tmp_path_factory.mktemp("reader")
    subprocess.run(
        ["make", "--silent", "--file", ROOT / "speedups" / "reader.mk", f"INTO={folder}"],
        check=True,
        cwd=ROOT,
    )
    return folder


@pytest.fixture(params=["interpreter", "thread"])
def read_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ReadPath:
    """Have sockets read this way, in processes that a test starts too."""
    path: ReadPath = request.param
    if path == "thread":
        folder = str(request.getfixturevalue("library_folder"))
        monkeypatch.syspath_prepend(folder)
        # With the modules that the tests themselves were found by: a child starts elsewhere.
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((folder, str(ROOT))))
    monkeypatch.setenv(PURE, "1" if path == "interpreter" else "0")
    reader.load_native.cache_clear()
    return path
