import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import Spawn

RUN = Path(__file__).parents[2] / ".ci" / "run"
MAKEFILE = """\
.PHONY: test lint unit test-slow slow-beside again test-browser test-ray test-vllm
test: lint unit
lint: ; @{lint}
unit: ; @echo '20 passed in 3.1s'
test-slow: slow-beside
slow-beside: ; @{slow}
again: ; @{again}
test-browser test-vllm: ; @echo '4 passed in 1.0s'
test-ray: ; @echo '==== 4 passed in 1.0s ===='
"""
NAMED = "FAILED tests/test_a.py::test_b - assert 1"
FAILURE = f"echo '{NAMED}'; echo '1 failed, 2 passed in 3.1s'; false"

pytestmark = pytest.mark.skipif(not RUN.exists(), reason="a source distribution has no .ci")


def checkout(
    folder: Path,
    *,
    lint: str = "true",
    slow: str = "echo '2 passed in 9.0s'",
    again: str = "echo '1 failed in 0.1s'; false",
) -> dict[str, str]:
    """Make a checkout whose targets do as they are
    told, and return the environment to check it in.
    """
    (folder / ".ci").mkdir()
    shutil.copy(RUN, folder / ".ci" / "run")
    (folder / "Makefile").write_text(
        MAKEFILE.format(lint=lint, slow=slow, again=again), encoding="utf-8"
    )
    (folder / "chromium").touch(mode=0o755)
    outside = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")
    }
    return {**outside, "PATH": f"{folder}:{os.environ['PATH']}", "AGENTLOAD_VLLM": "/bin/true"}


def checked(folder: Path, environment: dict[str, str]) -> tuple[int, list[str]]:
    """Run it, and return its exit code and its lines without the seconds that targets took."""
    done = subprocess.run(
        [folder / ".ci" / "run"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.returncode, [line.rpartition(" (")[0] or line for line in done.stdout.splitlines()]


def test_one_line_a_target_comes_last(tmp_path: Path) -> None:
    code, said = checked(tmp_path, checkout(tmp_path))
    assert (code, said[-6:]) == (
        0,
        [
            "== all passed",
            "make test: 20 passed in 3.1s",
            "make test-slow: 2 passed in 9.0s",
            *(f"make test-{each}: 4 passed in 1.0s" for each in ("browser", "ray", "vllm")),
        ],
    )


def test_what_failed_is_named_and_every_other_target_is_run(tmp_path: Path) -> None:
    code, said = checked(tmp_path, checkout(tmp_path, lint="false", slow=FAILURE))
    assert (code, said[said.index("== failed") :]) == (
        1,
        [
            "== failed",
            "make test: exit status 2",
            "  make: *** [Makefile:3: lint] Error 1",
            "make test-slow: exit status 2",
            f"  {NAMED}",
            "  make: *** [Makefile:6: slow-beside] Error 1",
            "== each target",
            "make test: FAILED, 20 passed in 3.1s",
            "make test-slow: FAILED, 1 failed, 2 passed in 3.1s; 1 failed in 0.1s",
            *(f"make test-{each}: 4 passed in 1.0s" for each in ("browser", "ray", "vllm")),
        ],
    )


def test_a_test_that_passes_by_itself_is_named_and_fails_nothing(tmp_path: Path) -> None:
    environment = checkout(tmp_path, slow=FAILURE, again="echo '1 passed in 0.1s'")
    code, said = checked(tmp_path, environment)
    named = said.index("== failed, and passed by itself: to be mended")
    assert (code, said[named + 1 : named + 5]) == (
        0,
        [
            f"  {NAMED}",
            "== all passed",
            "make test: 20 passed in 3.1s",
            "make test-slow: 1 failed, 2 passed in 3.1s; 1 passed in 0.1s",
        ],
    )


@pytest.mark.parametrize(
    ("lint", "slow"),
    [
        pytest.param("false", "echo '2 passed in 9.0s'", id="no test"),
        pytest.param("true", f"for i in 1 2 3 4 5; do echo '{NAMED}'; done; {FAILURE}", id="many"),
        pytest.param("true", f"echo '{NAMED}'; kill -KILL $$$$", id="killed"),
        pytest.param("true", f"echo '{NAMED}'; exit 2", id="not all ran"),
    ],
)
def test_nothing_else_that_failed_is_run_again(tmp_path: Path, lint: str, slow: str) -> None:
    environment = checkout(tmp_path, lint=lint, slow=slow, again="echo '1 passed in 0.1s'")
    code, said = checked(tmp_path, environment)
    assert code == 1
    assert "== make again" not in said


def test_a_target_that_does_not_end_is_ended_and_named(tmp_path: Path, spawn: Spawn) -> None:
    # Time that is up ends it with the same signal.
    environment = checkout(tmp_path, slow="{ touch begun; sleep 100; echo late; } > held")
    command = ["env", *(f"{name}={value}" for name, value in environment.items())]
    os.mkfifo(tmp_path / "held")
    with os.fdopen(
        os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8"
    ) as held:
        os.set_blocking(held.fileno(), True)
        running = spawn([*command, tmp_path / ".ci" / "run"])
        while not (tmp_path / "begun").exists():
            assert running.poll() is None
            time.sleep(0.01)
        running.terminate()
        said = running.communicate()[0].splitlines()
        assert held.read() == "", "whoever held it has ended"
    assert (running.returncode, said[-4:-2]) == (
        1,
        ["make test-slow: did not end", "== each target"],
    )
    assert said[-2].startswith("make test: 20 passed in 3.1s (")
    assert said[-1].startswith("make test-slow: FAILED, ended after ")
