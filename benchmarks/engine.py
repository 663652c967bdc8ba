"""Check the emulated engine against what was published,
and time a day of agents: `python -m benchmarks.engine`.

The load test is the published one, as the tests play it.
"""

from __future__ import annotations

import argparse
import heapq
import resource
import time
from dataclasses import dataclass, field
from random import Random

from agentload.builtin import find
from agentload.emulator.calls import EngineRequest, Finished, Gauges, Run
from agentload.emulator.engine import Engine
from agentload.emulator.profile import arm, parse
from agentload.emulator.steptime import off
from agentload.model.profile import ArmProfile
from tests.emulator.closed_loop import LOAD_TEST, closed_loop

S = 10**9


@dataclass(slots=True)
class Agent:
    """An agent whose context grows to 60k tokens, then is compacted."""

    name: str
    rng: Random
    content: tuple[Run, ...] = (("system", 2_800), ("tools", 12_300))
    tokens: int = 15_100
    turn: int = 0

    def next_request(self) -> EngineRequest:
        """Make the next turn: something new is said, then answered."""
        rng = self.rng
        if self.tokens > 60_000:
            self.content, self.tokens = (
                (*self.content[:2], (f"{self.name}.summary{self.turn}", 1_800)),
                16_900,
            )
        self.turn += 1
        added = min(4_000, max(20, int(rng.lognormvariate(6.0, 0.9))))
        output = min(4_000, max(16, int(rng.lognormvariate(5.5, 0.8))))
        self.content = (*self.content, (f"{self.name}.{self.turn}", added))
        request = EngineRequest(f"{self.name}.{self.turn}", self.content, output)
        self.content = (*self.content, (f"{self.name}.a{self.turn}", output))
        self.tokens += added + output
        return request


@dataclass(slots=True)
class Day:
    """What a simulated day came to."""

    calls: int = 0
    tokens: int = 0
    ended_ns: int = 0
    gauges: Gauges | None = field(default=None)


def day(of: ArmProfile, *, agents: int, turns: int, pause_s: float) -> Day:
    """Let every agent make its turns, one after the other, with a drawn pause before each."""
    engine = Engine(of)
    crew = [Agent(f"s{index}", Random(f"day:{index}")) for index in range(agents)]
    asking: dict[str, int] = {}
    due = [(int(agent.rng.random() * pause_s * S), index) for index, agent in enumerate(crew)]
    heapq.heapify(due)
    result = Day()
    while True:
        happens = engine.next_ns()
        if due and (happens is None or due[0][0] < happens):
            at, index = heapq.heappop(due)
            events = engine.advance(at)
            request = crew[index].next_request()
            asking[request.id] = index
            engine.submit(request, at)
        elif happens is not None:
            events = engine.advance(happens)
        else:
            break
        for event in events:
            if isinstance(event, Finished):
                result.calls += 1
                result.tokens += len(event.token_ns)
                result.ended_ns = event.at_ns
                index = asking.pop(event.id)
                if crew[index].turn < turns:
                    pause = int(crew[index].rng.expovariate(1 / pause_s) * S)
                    heapq.heappush(due, (event.at_ns + pause, index))
    result.gauges = engine.gauges()
    return result


def _arm(profile: str, name: str) -> ArmProfile:
    return arm(parse(find("profiles", profile).read_text(encoding="utf-8"), name=profile), name)


def _print_load_tests() -> None:
    print("published load test, published / emulated:")
    print(f"  {'arm':32} {'TTFT ms':>20} {'gap ms':>20} {'tokens/s':>22} {'wall ms':>8}")
    for profile, names in (
        ("llama-3.1-8b-h100", ("bf16", "fp8")),
        ("gpt-oss-20b-h100", ("bf16", "fp8", "fp8-skip-sw")),
    ):
        for name in names:
            of = off(_arm(profile, name))
            started = time.perf_counter()
            got = closed_loop(of, LOAD_TEST, 8)
            wall_ms = (time.perf_counter() - started) * 1e3
            (published,) = of.load_tests
            pairs = (
                (published.ttft_ms, got.ttft_ms, 1),
                (published.itl_ms, got.itl_ms, 2),
                (published.output_tok_s, got.output_tok_s, 1),
            )
            cells = [
                f"{was:.{places}f} / {now:.{places}f} ({now / was - 1:+.1%})"
                for was, now, places in pairs
            ]
            print(
                f"  {profile + '/' + name:32} {cells[0]:>20} {cells[1]:>20} {cells[2]:>22} "
                f"{wall_ms:>8.1f}"
            )


def _print_day(agents: int, turns: int) -> None:
    print(f"a day of {agents} agents, {agents * turns:,} calls, engine alone:")
    print(
        f"  {'arm':32} {'CPU s':>6} {'simulated h':>12} {'steps':>12} {'hits':>6} "
        f"{'preempted':>10} {'memory MB':>10}"
    )
    for profile, name in (("gpt-oss-20b-h100", "fp8-skip-sw"), ("llama-3.1-8b-b200", "fp8")):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.process_time()
        played = day(_arm(profile, name), agents=agents, turns=turns, pause_s=165)
        cpu_s = time.process_time() - started
        grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        gauges = played.gauges
        assert gauges
        hits = gauges.prefix_hits / gauges.prefix_queries
        hours = played.ended_ns / S / 3600
        row = (
            f"{cpu_s:>6.1f} {hours:>12.1f} {gauges.steps:>12,} {hits:>6.0%} "
            f"{gauges.preemptions:>10,} {grown_mb:>+10.0f}"
        )
        print(f"  {profile + '/' + name:32} {row}")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--turns", type=int, default=500)
    options = parser.parse_args()
    _print_load_tests()
    _print_day(options.agents, options.turns)


if __name__ == "__main__":
    main()
