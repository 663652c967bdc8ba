"""How fast a day of agents is simulated, and how much
memory it takes: `python -m benchmarks.simulate`.

200 agents, each with 500 calls in a day whose context grows until it
is compacted; engine with KV pool and prefix cache, rows included.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator
from random import Random

from agentload import COMPILED
from agentload.layout.plan import Scheme, plan
from agentload.model.rows import CallRow
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.servers import arms_of
from agentload.virtual.shell import Shell

DAY_S = 86_400.0


def said(role: str, tokens: int, key: str) -> Segment:
    """Make a segment."""
    # the roles below are roles
    return Segment(role=role, tokens=tokens, key=key)  # type: ignore[arg-type]


def agent(number: int, calls: int, rng: Random) -> Session:
    """Make one agent's day."""
    turns = []
    for turn in range(calls):
        new = (
            said("user", 400, f"{number}.{turn}")
            if turn == 0
            else said("tool", rng.randint(50, 500), f"{number}.{turn}")
        )
        answer = (said("assistant", 245, f"{number}.a{turn}"),) if turn else ()
        keep = 1 if turn and turn % 100 == 0 else None
        wait_s = rng.expovariate(calls / DAY_S) if turn else 0.0
        turns.append(
            Turn(
                add=(*answer, new),
                output=rng.randint(20, 470),
                wait="user",
                wait_s=wait_s,
                keep=keep,
            )
        )
    return Session(
        session=f"s{number}", workload="chat", start_s=number * 3.0, prefix="P", turns=tuple(turns)
    )


def agents(count: int, calls: int) -> Iterator[Session]:
    """Make all agents."""
    rng = Random(1)
    for number in range(count):
        yield agent(number, calls, rng)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--calls", type=int, default=500)
    options = parser.parse_args()
    (arm,) = arms_of("gpt-oss-20b-h100", ["fp8-skip-sw"])
    sessions = tuple(agents(options.agents, options.calls))
    trace = Trace(
        header=Header(name="day", prefixes={"P": (said("system", 3000, "sys"),)}), sessions=sessions
    )
    made = plan(trace, [arm.name], run="day", scheme=Scheme(pairs=1))
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    started, cpu = time.perf_counter(), time.process_time()
    calls = last_ns = 0
    for row in Shell(made, {arm.name: arm}, seed=1, sample_s=60.0).play():
        if isinstance(row, CallRow):
            calls += 1
            last_ns = max(last_ns, row.done_ns or 0)
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu
    grown_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before_mb
    columns = ("calls", "simulated h", "wall s", "cpu s", "× real time", "calls/s", "memory + MB")
    figures = (
        calls,
        last_ns / 3.6e12,
        wall_s,
        cpu_s,
        last_ns / 1e9 / wall_s,
        calls / wall_s,
        grown_mb,
    )
    print(
        f"compiled: {COMPILED}; goal: 100,000 calls of a day in 10 s on one core, compiled in 5 s"
    )
    print("".join(f"{name:>13}" for name in columns))
    print("".join(f"{figure:>13,.1f}" for figure in figures))


if __name__ == "__main__":
    main()
