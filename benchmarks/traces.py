"""Measure the traces: `python -m benchmarks.traces [TURNS [WORKLOAD]]`.

The time and memory of generating, writing, reading and checking a million
turns; how fast prompts are made; every workload's lengths and waits beside what
was measured of real agents, over 2,000 sessions, or 8,000 where a workload
mixes kinds of sessions. Exits with 1 if something misses its mark.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from agentload.model.trace import Segment, Session, Trace
from agentload.prompts.renderer import Renderer
from agentload.tracefile import read, write
from agentload.tracefile.check import check
from agentload.tracefile.overview import overview
from agentload.workloads import catalog
from agentload.workloads.parts.targets import TargetFigure, target_figures

SESSIONS = 2_000
TURNS = 1_000_000
WRITE_S, CHECK_S, MEMORY_MB = 60, 60, 500
TOKENS_PER_S = 10_000_000
SEED = 7


def main(turns: int, workload: str) -> int:
    """Run all parts; return how many marks were missed."""
    # In this order: a child's peak of memory counts what its parent had taken before.
    with tempfile.TemporaryDirectory() as folder:
        missed = volume(Path(folder) / "trace.jsonl", turns, workload)
    return missed + materialising() + fidelity()


def fidelity() -> int:
    """Print every target of every workload beside what its generator gives."""
    missed = 0
    print(
        f"\n{'workload':<11} {'field':<22} {'':<5} {'is':>10} {'from':>10} {'to':>10} {'values':>9}"
    )
    for name in catalog.names():
        for each in _held(name):
            missed += each.holds is False
            figures = f"{each.seen:>10,.4g} {each.low:>10,.4g} {each.high:>10,.4g} {each.count:>9,}"
            print(
                f"{name:<11} {each.field:<22} {each.figure:<5} {figures}  "
                f"{'ok' if each.holds else 'MISSED'}"
            )
    return missed


def _held(name: str) -> Iterator[TargetFigure]:
    made = catalog.workload(name)
    seen: set[tuple[str, str]] = set()
    for variant in made.variants:
        # A variant that mixes kinds of sessions needs more of them to show each kind often enough.
        sessions = SESSIONS * 4 if name in {"cron", "rag", "rag_passages"} else SESSIONS
        for each in target_figures(
            made.targets,
            overview(catalog.trace(name, seed=SEED, options={**variant, "sessions": sessions})),
        ):
            if each.holds is not None and (each.field, each.figure) not in seen:
                seen.add((each.field, each.figure))
                yield each
    lacking = set(made.targets) - {field for field, _ in seen}
    assert not lacking, f"{name}: too few values of {sorted(lacking)}"


def volume(path: Path, turns: int, workload: str) -> int:
    """Print what many turns cost, each step in a process of its own."""
    missed = 0
    print(f"{turns:,} turns of '{workload}' on one core")
    for step, most_s in (("write", WRITE_S), ("check", CHECK_S)):
        started = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.traces", step, str(path), str(turns), workload]
        child = subprocess.Popen(command)
        _, status, used = os.wait4(child.pid, 0)
        took_s, memory_mb = time.perf_counter() - started, used.ru_maxrss / 1024
        fits = status == 0 and took_s <= most_s and memory_mb <= MEMORY_MB
        missed += not fits
        print(
            f"{step:<6} {took_s:6.1f} s (mark {most_s} s)  {memory_mb:6.0f} MB (mark "
            f"{MEMORY_MB} MB)  {'ok' if fits else 'MISSED'}"
        )
    print(f"file   {path.stat().st_size / 1e6:.0f} MB")
    return missed


def write_turns(path: Path, turns: int, workload: str) -> None:
    """Write sessions until there are so many turns."""
    trace = catalog.trace(workload, seed=SEED, options={"sessions": 10**9})

    def enough() -> Iterator[Session]:
        left = turns
        for session in trace.sessions:
            if left <= 0 and session.start_s is not None:
                return
            left -= len(session.turns)
            yield session

    write(path, Trace(header=trace.header, sessions=enough()))


def check_turns(path: Path, turns: int) -> None:
    """Read and check what was written."""
    report = check(read(path))
    assert report.turns >= turns, report
    assert not report.problems, report.problems


def materialising() -> int:
    """Print how fast prompts are made: each all new, and each a bit longer than the one before."""
    fresh = _rendered(lambda prompt: _context(f"fresh{prompt}", 64))
    grown = _rendered(lambda prompt: _context(f"grows{prompt // 63}", 2 + prompt % 63))
    print(
        f"\nprompts of 128k tokens, all new            {fresh / 1e6:5.0f} million tokens/s "
        f"(mark {TOKENS_PER_S / 1e6:.0f})"
    )
    print(f"contexts that grow by 2k tokens up to 128k {grown / 1e6:5.0f} million tokens/s")
    return (fresh < TOKENS_PER_S) + (grown < TOKENS_PER_S)


def _rendered(context: Callable[[int], tuple[Segment, ...]]) -> float:
    """Return the tokens a second of 630 prompts."""
    renderer = Renderer(seed=SEED)
    contexts = [context(prompt) for prompt in range(630)]
    started = time.perf_counter()
    tokens = sum(renderer.render(each, salt="salt").tokens for each in contexts)
    return tokens / (time.perf_counter() - started)


def _context(name: str, steps: int) -> tuple[Segment, ...]:
    """Return a system prompt and so many tool steps of 2,000 tokens."""
    talk = (
        segment
        for step in range(steps)
        for segment in (
            Segment(role="assistant", tokens=216, key=f"{name}.{step}"),
            Segment(role="tool", tokens=1_784, key=f"{name}.{step}t"),
        )
    )
    return (Segment(role="system", tokens=2_000, key=name), *talk)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", path, turns, workload]:
            write_turns(Path(path), int(turns), workload)
        case ["check", path, turns, _]:
            check_turns(Path(path), int(turns))
        case [*given]:
            sys.exit(
                1
                if main(int(given[0]) if given else TURNS, given[1] if given[1:] else "mix")
                else 0
            )
