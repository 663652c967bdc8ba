"""Run the tests in processes that are forked once all tests are collected.

Collecting takes as long as hundreds of tests. Here one process does it, and each fork of it takes
one file of tests after another off a pipe, or one slow test. What takes longest begins first, or the others would wait for
it at the end: LASTING names it. A fork sends the reports of a test back as soon as it has ended.
The first process shows them as if it had run the test itself.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Final

import pytest
import yaml

Files = Sequence[Sequence[pytest.Item]]
LASTING: Final = "tests/long.yaml"
"""Where the seconds of what takes longest are kept, below the root of the tests."""
USUAL_S: Final = 0.1
"""Of any other test."""
PLACES: Final = 4
"""Bytes of a file's place on the pipe."""
PATIENCE_S: Final = 10.0
"""Seconds that interrupted forks have to end what their tests began."""


class Sender:
    """Send the reports of each test that ended."""

    def __init__(self, config: pytest.Config, wire: Connection) -> None:
        self._config, self._wire = config, wire
        self._reports: list[object] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        self._reports.append(hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_runtest_logfinish(self) -> None:
        self._wire.send(self._reports)
        self._reports = []

    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> None:
        if nextitem is None:
            gc.collect()  # what nobody closed is told now or never


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help="run the tests in so many processes")


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in forks, where that is asked for."""
    config = session.config
    number: int = config.getoption("forks")
    if not number or session.testsfailed or config.option.collectonly:
        return None
    config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # pytest sets it
    files = [list(group) for _, group in groupby(session.items, whole)]
    kept = config.rootpath / LASTING
    known = yaml.safe_load(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    files.sort(key=lambda group: -length_s(group, known))
    places, ours = os.pipe()
    os.write(ours, b"".join(place.to_bytes(PLACES) for place in range(len(files))))
    os.close(ours)
    children: dict[Connection, int] = {}
    try:
        for fork in range(number):
            wire, theirs = Pipe(duplex=False)
            sys.stdout.flush()  # or each fork writes what it has of it as well
            process = os.fork()
            if not process:
                for other in (wire, *children):
                    other.close()
                run(config, fork, taken(places, files), theirs)
            theirs.close()
            children[wire] = process
        missing = followed(session, list(children))
    finally:
        os.close(places)
        ends = ended(list(children.values()))
    for item in missing:
        shown(config, [lost(item, ends)])
    return True


def ended(processes: Sequence[int]) -> Sequence[int]:
    """Return the exit codes of forks; those that run on are interrupted, and then killed."""
    last = time.monotonic() + PATIENCE_S
    codes = []
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
    for process in processes:
        found, status = os.waitpid(process, os.WNOHANG)
        while not found and time.monotonic() < last:
            time.sleep(0.01)
            found, status = os.waitpid(process, os.WNOHANG)
        if not found:
            os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
        codes.append(os.waitstatus_to_exitcode(status))
    return codes


def whole(item: pytest.Item) -> object:
    """Return what one process runs together: a file, but a slow test that shares nothing alone."""
    if item.get_closest_marker("slow") is None:
        return item.path
    fixtures = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]  # of functions
    return item.path if any(each[-1].scope == "module" for each in fixtures.values()) else item


def length_s(group: Sequence[pytest.Item], known: Mapping[str, float]) -> float:
    """Return about how long a group takes: what is known of its file, or of each of its tests."""
    file = group[0].nodeid.partition("::")[0]
    each_s = [known.get(item.nodeid.partition("[")[0], USUAL_S) for item in group]
    return max(sum(each_s), known.get(file, 0.0) if len(group) > 1 else 0.0)


def taken(places: int, files: Files) -> Iterator[pytest.Item]:
    """Yield the tests of one file after another that no other process took."""
    while place := os.read(places, PLACES):
        yield from files[int.from_bytes(place)]


def run(config: pytest.Config, fork: int, items: Iterator[pytest.Item], wire: Connection) -> None:
    """Be a fork: run tests, send what came of them, and end."""
    status = 1
    item: pytest.Item | None = None
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # Output goes to a file, which no two processes may share.
        capturing = config.pluginmanager.getplugin("capturemanager")
        capturing.stop_global_capturing()
        capturing.start_global_capturing()
        capturing.suspend_global_capture()
        folders = config._tmp_path_factory  # type: ignore[attr-defined]  # as above
        folders._basetemp = folders.getbasetemp() / f"fork-{fork}"
        folders._basetemp.mkdir()
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(Sender(config, wire))
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
        status = 0
    except KeyboardInterrupt:
        if item is not None:
            item.session._setupstate.teardown_exact(None)
    except BaseException:  # noqa: BLE001 (a fork must not go on as its parent)
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def followed(session: pytest.Session, wires: list[Connection]) -> Sequence[pytest.Item]:
    """Show what forks send until they have ended, and return the tests of which none told."""
    missing = {item.nodeid: item for item in session.items}
    while wires:
        for wire in wait(wires):
            assert isinstance(wire, Connection)
            try:
                sent = wire.recv()
            except EOFError:
                wires.remove(wire)
                continue
            hook = session.config.hook
            reports = [
                hook.pytest_report_from_serializable(config=session.config, data=each)
                for each in sent
            ]
            del missing[reports[0].nodeid]
            shown(session.config, reports)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
    return tuple(missing.values())


def shown(config: pytest.Config, reports: Sequence[pytest.TestReport]) -> None:
    """Show the reports of a test."""
    node, place = reports[0].nodeid, reports[0].location
    config.hook.pytest_runtest_logstart(nodeid=node, location=place)
    for each in reports:
        config.hook.pytest_runtest_logreport(report=each)
    config.hook.pytest_runtest_logfinish(nodeid=node, location=place)


def lost(item: pytest.Item, ends: Sequence[int]) -> pytest.TestReport:
    """Return the report of a test whose process ended before it."""
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed",
        longrepr=f"the process that had taken this test ended before it; all ended with {ends}",
        when="call",
    )
