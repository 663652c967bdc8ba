"""The wheel runs in an environment of its own, from any folder, with the shipped data."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from agentload import __version__, builtin

ROOT = Path(__file__).parent.parent
KINDS: tuple[builtin.Kind, ...] = ("profiles", "traces", "presets")


def succeed(*command: str | Path, cwd: Path) -> str:
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=outside, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the source distribution, as a package
    index would get it, with a planted profile, trace and preset.
    """
    tree = tmp_path_factory.mktemp("tree") / "agentload"
    left_out = ("__pycache__", ".*", "build", "dist", "reports", "tests", "docs")
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*left_out))
    (tree / "profiles" / "planted.yaml").touch()
    (tree / "traces" / "planted.jsonl").touch()
    (tree / "presets" / "planted.yaml").touch()
    succeed(
        sys.executable, "-m", "build", "--no-isolation", "--outdir", tree / "dist", tree, cwd=tree
    )
    return next((tree / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an empty environment
    that borrows only the dependencies of this one.
    """
    home = tmp_path_factory.mktemp("venv")
    succeed(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    succeed(
        sys.executable,
        "-m",
        "pip",
        "--python",
        home / "bin/python",
        "install",
        "--no-deps",
        "--no-index",
        wheel,
        cwd=home,
    )
    packages = next(home.glob("lib/python*/site-packages"))
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin"


@pytest.mark.slow
def test_the_wheel_holds_both_packages_their_types_and_the_data(wheel: Path) -> None:
    files = set(zipfile.ZipFile(wheel).namelist())
    assert {"agentload/py.typed", "advisor/py.typed", "agentload/cli/main.py"} <= files
    assert {name.split("/")[0] for name in files} == {
        "agentload",
        "advisor",
        f"agentload-{__version__}.dist-info",
    }
    shipped = {
        f"agentload/_builtin/{file.relative_to(ROOT)}"
        for kind in KINDS
        for file in (ROOT / kind).rglob("*.*")
    }
    assert shipped <= files
    kept = {".j2", ".css", ".js", ".sql"}
    beside = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "agentload").rglob("*")
        if file.suffix in kept
    }
    assert (
        {
            "agentload/ui/templates/ui.css",
            "agentload/report/templates/page.css",
            "agentload/store/schema.sql",
        }
        <= beside
        <= files
    )


@pytest.mark.slow
def test_the_installed_command_runs_from_any_folder(elsewhere: Path, tmp_path: Path) -> None:
    assert (
        succeed(elsewhere / "agentload", "--version", cwd=tmp_path) == f"agentload {__version__}\n"
    )
    checks = {
        check["name"]: check
        for check in json.loads(succeed(elsewhere / "agentload", "doctor", "--json", cwd=tmp_path))
    }
    for kind in KINDS:
        assert checks[kind]["seen"] == ", ".join(sorted({*builtin.names(kind), "planted"}))


def test_the_installed_package_is_its_own_and_not_the_checkout(
    elsewhere: Path, tmp_path: Path
) -> None:
    program = "import agentload, advisor; print(agentload.__file__, advisor.__file__)"
    for file in succeed(elsewhere / "python", "-c", program, cwd=tmp_path).split():
        assert Path(file).is_relative_to(elsewhere.parent)
