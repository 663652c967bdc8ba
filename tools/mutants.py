"""Break one thing at a time and see whether tests notice: `python -m tools.mutants ROOM`.

Or `make mutants ROOM=dispatch N=60 SEED=0`. A mutant is a module in which one comparison,
arithmetic operator, number, truth value, `and`, `or` or `not` is another. A mutant that
survives is either equivalent to its source, or shows a behaviour that no test checks. ROOM
is a room (`dispatch`, `advisor`), a folder of one (`report/sections`) or a module
(`verdict/policy`). The nearest tests that mirror it judge, in a copy of the tree. Equal
seeds draw the same. Mutants known to be equivalent are listed with the reason in
`equivalents.yaml` next to those tests, and counted separately.

The tests run once without a mutation, and coverage records which lines each one takes. A
mutant is judged by the tests that take its statement, the fastest first. A statement
outside of functions (a default, a constant) is judged by the tests that mirror its
module, or take it or one that names it, and a statement that no test takes in its own
process by all. Each mutant has a process, forked from one that has the libraries loaded.
"""

import argparse
import gc
import importlib
import importlib.util
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from textwrap import shorten
from typing import Final, Literal

import coverage
import pytest
import yaml

from tools.mutations import Mutant, mutants, mutated

HOUSE: Final = Path(__file__).parents[1]
LEFT_BEHIND: Final = shutil.ignore_patterns(".*", "__pycache__", "reports", "build", "dist")
PYTEST: Final = (
    "-x",
    "-q",
    "-p",
    "no:cacheprovider",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
    "--hypothesis-seed=0",
)
PASSED: Final = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
PATIENCE: Final = 5
"""Times as long that tests may take with a mutant as without one, and `SPARE_S` more.

A mutant that takes longer has made something endless.
"""
SPARE_S: Final = 60.0
WIDTH: Final = 100

Outcome = Literal["killed", "timed out", "survived", "equivalent"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("killed", "timed out", "survived", "equivalent")


def modules(house: Path, room: str) -> list[Path]:
    """Return the modules of a room, a folder of one or one module, relative to the house."""
    base = house if room.partition("/")[0] == "advisor" else house / "agentload"
    found = sorted((base / room).rglob("*.py")) or [
        path for path in [base / f"{room}.py"] if path.exists()
    ]
    return [path.relative_to(house) for path in found]


def judges(house: Path, room: str) -> Path:
    """Return the nearest tests that mirror a room, relative to the house."""
    mirrored = Path("tests") / room
    module = mirrored.with_name(f"test_{mirrored.name}.py")
    near = (mirrored, module, *mirrored.parents)
    return next(path for path in near if (house / path).exists())


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A mutant that `equivalents.yaml` lists as equivalent.

    `of` is a part of its source line, given where its texts occur twice.
    """

    module: str
    before: str
    after: str
    why: str
    of: str = ""

    def is_of(self, path: Path, mutant: Mutant, source: str) -> bool:
        """Return whether this entry is about a mutant of a module."""
        texts = (str(path), mutant.before, mutant.after) == (self.module, self.before, self.after)
        return texts and self.of in source.splitlines()[mutant.line - 1]


def equivalents(judging: Path) -> tuple[Equivalent, ...]:
    """Read the mutants that are kept as equivalent next to these tests."""
    path = judging / "equivalents.yaml"
    return (
        tuple(Equivalent(**each) for each in yaml.safe_load(path.read_text(encoding="utf-8")))
        if path.exists()
        else ()
    )


@dataclass(frozen=True, slots=True)
class Taken:
    """What tests do without a mutation: seconds, the tests of each line, loaded libraries."""

    seconds: dict[str, float]
    lines: dict[str, dict[int, frozenset[str]]]
    libraries: tuple[str, ...]

    def judging(self, path: Path, mutant: Mutant, sources: Mapping[Path, str]) -> list[str]:
        """Return the tests that judge a mutant, in their order."""
        if mutant.lines:
            taking = {
                test
                for line in mutant.lines
                for test in self.lines.get(str(path), {}).get(line, ())
            }
        else:
            named = re.compile(rf"\b{path.stem}\b")
            readers = [path, *(each for each, source in sources.items() if named.search(source))]
            taking = {
                test
                for each in readers
                for tests in self.lines.get(str(each), {}).values()
                for test in tests
            }
            taking |= {test for test in self.seconds if f"test_{path.stem}.py::" in test}
        return sorted(taking or self.seconds, key=lambda test: self.seconds[test])


@dataclass(slots=True)
class Recorder:
    """A plugin of pytest that names the running test to coverage, and keeps its duration."""

    covering: coverage.Coverage
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Name the test while it runs."""
        self.covering.switch_context(item.nodeid)
        result = yield
        self.covering.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what a test's phases took."""
        self.seconds[report.nodeid] += report.duration


@dataclass(frozen=True, slots=True)
class Order:
    """A plugin of pytest that plays these of all *known* tests in this order.

    Tests that are not known, because their parameters have another name now, come first.
    """

    tests: Sequence[str]
    known: Container[str]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out all others."""
        places = {test: place for place, test in enumerate(self.tests)}
        played = [item for item in items if item.nodeid in places or item.nodeid not in self.known]
        items[:] = sorted(played, key=lambda item: places.get(item.nodeid, -1))


def record(judging: Path, paths: Iterable[Path], into: Path) -> int:
    """Run the tests, and write into a file which lines of *paths* each test takes.

    Call this in the copied tree, in a process of its own.
    """
    covering = coverage.Coverage(
        data_file=None, config_file=False, source=sorted({path.parts[0] for path in paths})
    )
    covering.start()
    recorder = Recorder(covering)
    said = pytest.main([*PYTEST, str(judging)], [recorder])
    covering.stop()
    found = covering.get_data()
    lines = {
        str(path): {
            line: frozenset(sys.intern(test) for test in tests if test)
            for line, tests in found.contexts_by_lineno(str(path.absolute())).items()
        }
        for path in paths
    }
    libraries = tuple(name for name in sys.modules if not _is_ours(name, Path.cwd()))
    into.write_bytes(pickle.dumps((dict(recorder.seconds), lines, libraries)))
    return said


def judged(tests: Sequence[str], known: Container[str]) -> int:
    """Run these tests in their order until one fails.

    Call this in the copied tree, in a process of its own.
    """
    return pytest.main(
        [*PYTEST, *dict.fromkeys(test.partition("::")[0] for test in tests)], [Order(tests, known)]
    )


def outcome(act: Callable[[], int | None], house: Path, limit_s: float | None = None) -> Outcome:
    """Run *act* in a copied tree and return what its tests say of the mutant.

    It runs in a process of its own, and all processes that it started end with it.
    """
    process = multiprocessing.get_context("fork").Process(target=_act, args=(act, house))
    process.start()
    assert process.pid is not None
    process.join(limit_s)
    process.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    return (
        "timed out"
        if process.exitcode == -signal.SIGKILL
        else "survived"
        if process.exitcode in PASSED
        else "killed"
    )


def _act(act: Callable[[], int | None], house: Path) -> None:
    """Run *act* in a copied tree as if nothing had been imported from this one.

    The packages are loaded from the copy, in processes that the tests start too.
    """
    # What this process inherits is not collected here: a database's threads are not in it.
    gc.freeze()
    os.setpgid(0, 0)
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(silence, stream)
    os.chdir(house)
    os.environ["PYTHONPATH"] = str(house)
    sys.path.insert(0, str(house))
    for name in [name for name in sys.modules if _is_ours(name, house)]:
        del sys.modules[name]
    sys.exit(act())


def _is_ours(name: str, house: Path) -> bool:
    top = house / name.partition(".")[0]
    return top.is_dir() or top.with_suffix(".py").exists()


def play(
    room: str,
    judging: Path,
    *,
    number: int,
    seed: int,
    write: Callable[[str], object],
    house: Path = HOUSE,
) -> Counter[Outcome]:
    """Draw mutants of a room and write what the tests *judging* say of each.

    Raises SystemExit if the tests fail without a mutation.
    """
    sources = {path: (house / path).read_text(encoding="utf-8") for path in modules(house, room)}
    drawn = [(path, mutant) for path, source in sources.items() for mutant in mutants(source)]
    if not drawn:
        raise SystemExit(f"error: no room or module '{room}' that could be changed")
    drawn = Random(seed).sample(drawn, min(number, len(drawn)))
    kept = equivalents(house / judging)
    outcomes = Counter[Outcome]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        there, notes = Path(folder) / "house", Path(folder) / "taken"
        shutil.copytree(house, there, ignore=LEFT_BEHIND)
        if outcome(partial(record, judging, tuple(sources), notes), there) != "survived":
            raise SystemExit(f"error: {judging} fails without a mutation")
        taken = Taken(*pickle.loads(notes.read_bytes()))
        for library in taken.libraries:
            with suppress(
                Exception
            ):  # loaded once here, not in each process; a library that fails here is loaded there
                importlib.import_module(library)
        for path, mutant in drawn:
            tests = taken.judging(path, mutant, sources)
            _put(there / path, mutated(sources[path], mutant))
            said = outcome(
                partial(judged, tests, taken.seconds),
                there,
                PATIENCE * sum(taken.seconds[test] for test in tests) + SPARE_S,
            )
            _put(there / path, sources[path])
            if said == "survived" and any(each.is_of(path, mutant, sources[path]) for each in kept):
                said = "equivalent"
            outcomes[said] += 1
            write(
                f"{said:10} {path}:{mutant.line}  {shorten(mutant.before, WIDTH)}  ->  "
                f"{shorten(mutant.after, WIDTH)}\n"
            )
    write(
        f"{room}: "
        + ", ".join(f"{outcomes[each]} {each}" for each in OUTCOMES)
        + f" of {len(drawn)}, by {judging}\n"
    )
    return outcomes


def _put(path: Path, source: str) -> None:
    path.write_text(source, encoding="utf-8")
    Path(importlib.util.cache_from_source(path)).unlink(
        missing_ok=True
    )  # Python trusts a cached file if the source has the same size and second


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and play."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("room")
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", type=Path, help="judge by these instead, such as tests/layout")
    options = parser.parse_args(arguments)

    def write(line: str) -> None:
        sys.stdout.write(line)
        sys.stdout.flush()

    play(
        options.room,
        options.tests or judges(HOUSE, options.room),
        number=options.number,
        seed=options.seed,
        write=write,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
