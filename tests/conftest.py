"""Settings and fixtures that all tests share."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

import pytest
from hypothesis import settings

from agentload.cli._signals import handle_signals
from agentload.live import runner
from agentload.serve import processes
from tests import forks
from tests.forks import pytest_addoption
from tests.nursery import Nursery

__all__ = ["pytest_addoption"]

NURSERY = Nursery(processes._launch)
IMPORTED_LATE = ("openai", "pandas", "pyarrow.compute")
"""Libraries that take long to import, and that no module of tests imports; DuckDB looks for pandas."""

# Shared and slow machines make deadlines lie;
# `make test-slow` looks ten times longer, `HYPOTHESIS_PROFILE=thorough` fifty times.
settings.register_profile("quick", deadline=None, max_examples=20, print_blob=True)
settings.register_profile("slow", deadline=None, max_examples=200, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=1_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


# A second for each run of a replay, and what it says
# of a shared machine, are no matter of most tests.
os.environ.setdefault("AGENTLOAD_CLIENT_CHECK", "0")


# Each module is compiled once, whatever the shell says:
# here, and in the hundreds of processes that tests start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the collector of garbage the thousands of tests, which
    live to the end: it looked at all of them again and again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def is_covered() -> bool:
    """Tell whether lines are noted: a server that is forked does not say which it took."""
    return bool(os.environ.get("COVERAGE_PROCESS_CONFIG"))


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Do once, before tests are run in forks, what each of them would do later."""
    if session.config.getoption("forks"):
        if not is_covered():
            NURSERY.started()
        for each in IMPORTED_LATE:
            import_module(each)
    return forks.pytest_runtestloop(session)


def pytest_sessionfinish() -> None:
    """Let what was spared be freed before the process
    ends, or the database's library takes it for a leak.
    """
    NURSERY.close()
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def nursery() -> Iterator[None]:
    """Spare the servers that tests start their second of imports each."""
    if is_covered():
        yield
        return
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(processes, "_launch", NURSERY.launch)
        yield


@pytest.fixture(scope="session", autouse=True)
def swept() -> Iterator[None]:
    """Spare each play in this process its looks at all objects, for they took
    longer than the play: thousands of tests are among the objects.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runner, "swept_rarely", nullcontext)
        patched.setattr(runner, "gc", SimpleNamespace(collect=lambda: 0))
        yield


class Spawn(Protocol):
    """Start a command in a folder, with both of its streams in pipes."""

    def __call__(
        self, command: Sequence[str | Path], folder: Path | None = None
    ) -> subprocess.Popen[str]:
        """Return its process."""
        ...


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Start commands whose processes and pipes end with the test,
    also where it fails: else a later test is blamed for them.
    """
    with ExitStack() as stack:

        def spawned(
            command: Sequence[str | Path], folder: Path | None = None
        ) -> subprocess.Popen[str]:
            pipe = subprocess.PIPE
            # A command inherits what is ignored, and the
            # tests may run in the background or under nohup.
            with handle_signals(
                {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
            ):
                process = subprocess.Popen(
                    command, cwd=folder, stdout=pipe, stderr=pipe, text=True, process_group=0
                )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield spawned
