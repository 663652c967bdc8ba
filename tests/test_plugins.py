"""Packages outside the tree add workloads, importers, exporters,
tasks and rules; what one of them breaks breaks nothing else.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = """
    [build-system]
    requires = ["hatchling"]
    build-backend = "hatchling.build"

    [project]
    name = "outside-agents"
    version = "1.0"

    [project.entry-points."agentload.workloads"]
    steady = "outside.steady"
    [project.entry-points."agentload.importers"]
    pairs = "outside.pairs"
    [project.entry-points."agentload.exporters"]
    pairs-out = "outside.pairs_out"
    [project.entry-points."agentload.tasks"]
    parrot = "outside.parrot"
    [project.entry-points."agentload.rules"]
    two_arms = "outside.two_arms"

    [tool.hatch.build.targets.wheel]
    packages = ["outside"]
"""
MODULES = {
    "__init__": '"""Plug-ins of somebody else\'s."""',
    "steady": '''
        """Sessions of one call, all of one length."""
        from collections.abc import Iterator
        from random import Random
        from agentload.model.trace import Segment, Session, Turn
        from agentload.plugins import Positive

        def generate(rng: Random, *, sessions: Positive = 3, tokens: Positive = 400) -> Iterator[Session]:
            for number in range(sessions):
                add = (Segment(role="user", tokens=tokens, key=f"u{number}.{rng.random()}"),)
                yield Session(session=f"s{number}", workload="steady", start_s=float(number), turns=(Turn(add=add, output=20),))
    ''',
    "pairs": '''
        """Lines of two numbers: tokens of a prompt and of its answer."""
        from collections.abc import Iterator
        from agentload.importers.parts.intake import Head, Intake
        from agentload.model.trace import Segment, Session, Turn

        FILES = ("*.pairs",)

        def sniff(head: Head) -> float:
            return 1.0 if head.path.suffix == ".pairs" else 0.0

        def sessions(intake: Intake, *, every_s: float = 1.0) -> Iterator[Session]:
            for path in intake.files:
                for number, line in enumerate(path.read_text().splitlines()):
                    prompt, output = map(int, line.split())
                    add = (Segment(role="user", tokens=prompt, key=f"{number}"),)
                    yield Session(session=f"s{number}", workload="pairs", start_s=number * every_s, turns=(Turn(add=add, output=output),))
    ''',
    "pairs_out": '''
        """Lines of two numbers again."""
        from collections.abc import Iterator
        from agentload.model.trace import Trace

        def lines(trace: Trace, *, times: int = 1) -> Iterator[bytes]:
            for session in trace.sessions:
                for turn in session.turns:
                    yield f"{times * sum(segment.tokens for segment in turn.add)} {turn.output}\\n".encode()
    ''',
    "parrot": '''
        """Say a word again."""
        from agentload.tasks import NOTHING, Grade, Item, prompt

        HAS_DEPTH = False

        def generate(rng, *, context, depth, tokenizer) -> Item:
            word = f"word{int(rng.random() * 1000)}"
            return Item(messages=prompt(f"Say {word}."), wanted=(word,), output_tokens=8)

        def grade(answer: str, item: Item) -> Grade:
            return Grade(score=1.0, right=True) if item.wanted[0] in answer else NOTHING
    ''',
    "two_arms": '''
        """Say how many arms there were."""
        from advisor.case import Case
        from advisor.verdict import Finding

        NEEDS = frozenset({"evidence.reference"})

        def check(case: Case) -> Finding:
            return Finding(kind="informs", message=f"A rule from outside saw {1 + len(case.evidence.challengers)} arms.")
    ''',
}


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install a package of plug-ins into a folder of its own."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    (source / "outside").mkdir()
    (source / "pyproject.toml").write_text(dedent(PROJECT))
    for name, text in MODULES.items():
        (source / "outside" / f"{name}.py").write_text(dedent(text).lstrip())
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", folder)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, source],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def announced(
    folder: Path, package: str, groups: Mapping[str, str], modules: Mapping[str, str]
) -> Path:
    """Write what an installation of a package would leave."""
    metadata = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "".join(f"[{group}]\n{entry}\n" for group, entry in groups.items())
    )
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return folder


TYPIST = """
import io, json, sys
from agentload.cli.main import main

done = []
for line in sys.argv[1:]:
    sys.argv = ["agentload", *line.split()]
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    code = main()
    sys.stdout.flush(), sys.stderr.flush()
    done.append((code, *(each.buffer.getvalue().decode() for each in (sys.stdout, sys.stderr))))
sys.__stdout__.write(json.dumps(done))
"""
"""Types one line after another: a process for each of them would import for most of its time."""


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def agentload(*lines: str, of: Path, cwd: Path) -> list[Done]:
    """Type lines in a process that finds the packages of a folder; return what came of each."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(of))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-c", TYPIST, *lines]
    typist = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert typist.returncode == 0, typist.stderr
    return [Done(*each) for each in json.loads(typist.stdout)]


def succeed(*lines: str, of: Path, cwd: Path) -> list[str]:
    """Type lines, of which none may fail, and return what each printed."""
    found = agentload(*lines, of=of, cwd=cwd)
    assert [done.stderr for done in found if done.returncode] == []
    return [done.stdout for done in found]


@pytest.mark.slow
def test_an_installed_package_adds_a_workload_an_importer_and_an_exporter(
    outside: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.pairs").write_text("100 7\n50 3\n")
    listed, options, refused, _, made, *imported = agentload(
        "trace generate",
        "trace generate steady --options",
        "trace generate steady tokens=0",
        "trace generate steady sessions=2 tokens=50 -o steady.jsonl",
        "trace export pairs-out steady.jsonl times=2",
        "trace import mine.pairs -o mine.jsonl",
        "trace export pairs_out mine.jsonl",
        "trace import pairs mine.pairs -o mine.jsonl",
        "trace export pairs_out mine.jsonl",
        of=outside,
        cwd=tmp_path,
    )
    assert "steady        Sessions of one call, all of one length.\n" in listed.stdout
    assert "tokens    400\n" in options.stdout
    assert (
        refused.stderr
        == "error: steady: tokens: Expected `int` >= 1, got '0'\nhint: the default is 400\n"
    )
    assert made == Done(0, "100 20\n100 20\n", "")
    _, guessed, _, named = imported
    assert (guessed.stdout, named.stdout) == ("100 7\n50 3\n",) * 2
    assert [done.returncode for done in imported] == [0] * 4


@pytest.mark.slow
def test_an_installed_package_adds_a_task_and_a_rule(outside: Path, tmp_path: Path) -> None:
    asked, advised = succeed(
        "eval --endpoints emulated:llama-3.1-8b-h100/bf16+fp8 --tasks parrot --contexts 4k "
        "--items 2 --db eval.duckdb",
        "advise eval.duckdb --json",
        of=outside,
        cwd=tmp_path,
    )
    assert "parrot  4k" in asked
    assert '"A rule from outside saw 2 arms."' in advised


@pytest.mark.slow
def test_what_a_package_breaks_is_named_and_breaks_nothing_else(tmp_path: Path) -> None:
    groups = {
        f"agentload.{room}": "odd = odd"
        for room in ("workloads", "importers", "exporters", "tasks")
    }
    of = announced(tmp_path, "odd-agents", groups, {"odd": "import what_is_not_there\n"})
    why = (
        "of the package 'odd-agents' cannot be loaded: ModuleNotFoundError: No module named "
        "'what_is_not_there'"
    )
    hint = "hint: pip install --upgrade odd-agents, or pip uninstall odd-agents\n"
    (tmp_path / "a.csv").write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00,100,7\n"
    )
    listed, made, asked, imported = agentload(
        "trace generate",
        "trace generate odd",
        "eval --endpoints emulated:llama-3.1-8b-h100 --tasks odd --dry-run",
        "trace import a.csv -o a.jsonl",
        of=of,
        cwd=tmp_path,
    )
    assert f"odd           workload 'odd' {why}\nrag           " in listed.stdout
    assert (made.returncode, made.stderr) == (1, f"error: workload 'odd' {why}\n{hint}")
    assert (asked.returncode, asked.stderr) == (1, f"error: task 'odd' {why}\n{hint}")
    assert (listed.returncode, imported.returncode) == (0, 0)


FAILS = """
    FILES = ("*.fails",)

    def generate(rng):
        yield from ()
        raise ValueError("no shape")

    def sniff(head):
        return 1.0 / 0

    def sessions(intake):
        return [][1]

    def lines(trace):
        yield b"one"
        raise KeyError("two")
"""


FAILING = {
    "trace generate fails -o t.jsonl": "workload 'fails' {}: ValueError: no shape (fails.py:6)",
    "trace import a.fails -o t.jsonl": (
        "format 'fails' {}: ZeroDivisionError: float division by zero (fails.py:9)"
    ),
    "trace import fails a.fails -o t.jsonl": (
        "format 'fails' {}: IndexError: list index out of range (fails.py:12)"
    ),
    "trace export fails demo-chat -o t.out": "format 'fails' {}: KeyError: 'two' (fails.py:16)",
}


def test_a_plug_in_that_fails_is_named_with_its_place(tmp_path: Path) -> None:
    groups = {
        f"agentload.{room}": "fails = fails" for room in ("workloads", "importers", "exporters")
    }
    of = announced(tmp_path, "failing-agents", groups, {"fails": dedent(FAILS)})
    (tmp_path / "a.fails").write_text("1 2\n")
    every = agentload(*FAILING, of=of, cwd=tmp_path)
    for why, done in zip(FAILING.values(), every, strict=True):
        error, hint = done.stderr.splitlines()[-2:]
        assert done.returncode == 1
        assert error == "error: " + why.format("of the package 'failing-agents' failed")
        assert hint == (
            "hint: pip install --upgrade failing-agents, or tell its authors: AGENTLOAD_DEBUG=1 "
            "prints the traceback"
        )
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "t.jsonl").exists()


def test_a_package_that_ends_the_program_is_named(tmp_path: Path) -> None:
    of = announced(
        tmp_path,
        "quitting-agents",
        {"agentload.importers": "quits = quits"},
        {"quits": "raise SystemExit(0)\n"},
    )
    [done] = agentload("trace import quits", of=of, cwd=tmp_path)
    assert (done.returncode, done.stderr.partition("\n")[0]) == (
        1,
        "error: format 'quits' of the package 'quitting-agents' cannot be loaded: SystemExit: 0",
    )


def test_a_plug_in_that_lacks_what_it_needs_is_refused(tmp_path: Path) -> None:
    of = announced(
        tmp_path,
        "half-agents",
        {"agentload.importers": "half = half"},
        {"half": "sessions = print\n"},
    )
    [done] = agentload("trace import half", of=of, cwd=tmp_path)
    assert (done.returncode, done.stderr.partition("\n")[0]) == (
        1,
        "error: format 'half' of the package 'half-agents' defines no FILES",
    )


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    of = announced(
        tmp_path,
        "rag-agents",
        {"agentload.workloads": "rag = mine"},
        {"mine": "def generate(rng): ...\n"},
    )
    done, other = agentload(
        "trace generate rag", "trace generate mix sessions=2 -o mix.jsonl", of=of, cwd=tmp_path
    )
    assert done.returncode == 1
    assert done.stderr == (
        "error: workload 'rag' is of agentload and of rag-agents: a name stands for one\n"
        "hint: pip uninstall rag-agents, or have it use another name\n"
    )
    assert other.returncode == 0
