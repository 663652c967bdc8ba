"""Compare windows with hours of the load that they stand for.

The first table is about what is played: the contexts (median, 90%) of the calls
in the windows of a decision, over many starts, beside those of hours of a closed
loop of the whole trace with its ramp-up dropped. `pooled` is the ratio over all
starts together, `alone` the share of single decisions within 10%. A decision
has the windows of twelve pairs, or as many as a shorter trace has time for.

The second is about what is found: the change of turn latency that one decision without noise
estimates from its windows, over many starts, beside the mean change in the hours. `bias` is
the mean difference in points, `covered` the share of intervals that hold the truth. Where a
pool is full, no window tells the size: only the share of right signs is printed.

Real traces are given as files: `agentload trace import ... -o FILE`. `python -m
benchmarks.windows [--draws 200] [--starts 20] [--traces chat,code,rag]
[--real FILE ...] [--profiles NAME ...] [--hours 6]`
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

import agentload
from agentload.kvmath.pool import pool_of
from agentload.layout.nominal import nominal_calls
from agentload.layout.steady import steady
from agentload.layout.windows import held_tokens, windows, windows_played
from agentload.model.profile import ArmProfile
from agentload.model.trace import Trace
from agentload.run.files import read_traces
from agentload.run.servers import arms_of
from agentload.study.kinds import Replay
from agentload.study.parts import Load, TraceRef, Virtual
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import verdict
from tests.decision.hours import USER_WAIT_S, steady_calls, timed

SESSIONS: Final = 4
WINDOW_S: Final = 75.0
PAIRS: Final = 12
HOURS: Final = 6.0
QUANTILES: Final = (0.5, 0.9)
FITS: Final = 0.9
"""Share of a pool that contexts may take before they throw each other out."""
ARMS: Final = ("bf16", "fp8")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A trace under a load, on two arms of a profile."""

    name: str
    refs: tuple[TraceRef, ...]
    profile: str
    sessions: int = SESSIONS
    hours_s: float = 3600.0 * HOURS

    @property
    def load(self) -> Load:
        """Return the load of its windows."""
        return Load(
            sessions=self.sessions,
            wait_cap_s={"user": USER_WAIT_S},
            duration_s=WINDOW_S,
            max_context_tokens=self.longest,
        )

    @cached_property
    def arms(self) -> dict[str, ArmProfile]:
        """Return the profile's arms."""
        return {arm.name: arm for arm in arms_of(self.profile, ARMS)}

    @property
    def longest(self) -> int:
        """Return the longest context that the arms take."""
        return min(arm.server.max_model_len for arm in self.arms.values())

    @cached_property
    def trace(self) -> Trace:
        """Return its sessions."""
        found, _ = read_traces(self.refs, max_context_tokens=self.longest)
        return Trace(header=found.header, sessions=tuple(found.sessions))

    @property
    def windows(self) -> int:
        """Return how many windows the pairs have, before one is played twice."""
        return windows_played(steady(self.trace, self.load.planned()), PAIRS)

    @property
    def has_room(self) -> bool:
        """Tell whether all contexts fit both pools."""
        held = held_tokens(steady(self.trace, self.load.planned()), seed=0)
        return held <= FITS * min(pool_of(arm).tokens for arm in self.arms.values())

    def played(self, seed: int) -> Iterator[int]:
        """Yield the contexts of the calls that one decision times, at the nominal speed."""
        stock = steady(self.trace, self.load.planned())
        laid = windows(stock, number=self.windows, pairs=PAIRS, seed=seed)
        for block in laid.blocks:
            for call in nominal_calls(self.trace.header, block, laid.load):
                if call.counts:
                    yield sum(segment.tokens for segment in call.context)

    def estimated(self, seed: int, folder: Path) -> tuple[float, float, float]:
        """Return the change of turn latency that one
        decision finds, and the ends of its interval.
        """
        servers = Virtual(profile=self.profile, arms=ARMS, noise=False)
        study = Replay(
            traces=self.refs,
            servers=servers,
            pairs=PAIRS,
            windows=self.windows,
            load=self.load,
            seed=seed,
        )
        made = agentload.simulate(study, db=folder / f"{seed}.duckdb")
        (found,) = verdict(made.database, made.run_id, setting=Setting()).decision.server
        estimate = found.pays.estimate
        assert estimate is not None
        assert estimate.low is not None
        assert estimate.high is not None
        return estimate.value, estimate.low, estimate.high


def contexts_row(case: Case, draws: int) -> str:
    """Compare what is played."""
    hours = steady_calls(
        case.trace, {"bf16": case.arms["bf16"]}, sessions=case.sessions, seconds=case.hours_s
    )["bf16"]
    truth = np.quantile([row.context_tokens for row in hours], QUANTILES)
    each = [np.array(list(case.played(seed))) for seed in range(draws)]
    pooled = np.quantile(np.concatenate(each), QUANTILES) / truth
    alone = np.array([np.quantile(one, QUANTILES) / truth for one in each])
    within = np.mean(np.all(np.abs(alone - 1) <= 0.10, axis=1))
    quantiles = " / ".join(f"{value:,.0f}" for value in truth)
    return (
        f"{case.name:<24}{case.windows:>8}{len(hours):>8,}  {quantiles:>18}  {pooled[0]:.3f} / "
        f"{pooled[1]:.3f}  {within:>6.0%}"
    )


def effect_row(case: Case, starts: int) -> str:
    """Compare what is found."""
    hours = steady_calls(case.trace, case.arms, sessions=case.sessions, seconds=case.hours_s)
    truth = math.expm1(np.mean([turn.log_ratio for turn in timed(hours["bf16"], hours["fp8"])]))
    with TemporaryDirectory() as folder:
        found = np.array([case.estimated(seed, Path(folder)) for seed in range(starts)])
    values, low, high = found.T
    bias, spread = 100 * (np.mean(values) - truth), 100 * np.std(values)
    covered = np.mean((low <= truth) & (truth <= high))
    sign = np.mean(np.sign(values) == np.sign(truth))
    of_size = (
        f"{bias:>+6.1f}  {spread:>6.1f}  {covered:>7.0%}" if case.has_room else f"{'pool full':>23}"
    )
    return (
        f"{case.profile:<24}{case.name:<24}{case.sessions:>3}  {truth:>+7.1%}  {of_size}  "
        f"{sign:>5.0%}"
    )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=200, help="starts whose contexts are read")
    parser.add_argument("--starts", type=int, default=20, help="starts that are played")
    parser.add_argument(
        "--traces",
        default="chat,code,rag,reasoning,cron,chat+code+rag",
        help="shipped traces; + mixes them",
    )
    parser.add_argument("--real", nargs="*", default=[], help="traces of your own")
    parser.add_argument(
        "--profiles", nargs="*", default=["llama-3.1-8b-h100"], help="with bf16 and fp8 arms"
    )
    parser.add_argument(
        "--hours",
        type=float,
        default=HOURS,
        help="of steady load, more where a trace makes few calls in them",
    )
    asked = parser.parse_args()
    named = [
        (name, tuple(TraceRef(path=path) for path in name.split("+")))
        for name in asked.traces.split(",")
        if name
    ]
    named += [(Path(path).name.partition(".")[0], (TraceRef(path=path),)) for path in asked.real]
    cases = [
        Case(name=name, refs=refs, profile=profile, hours_s=3600.0 * asked.hours)
        for profile in asked.profiles
        for name, refs in named
    ]
    print_table(
        ("trace                    windows   calls   hours, q50 / q90       pooled       alone"),
        (contexts_row(each, asked.draws) for each in cases if each.profile == asked.profiles[0]),
        asked.draws,
    )
    print_table(
        (
            "profile                 trace                    n    hours    bias  spread  "
            "covered   sign"
        ),
        (
            effect_row(replace(each, sessions=sessions), asked.starts)
            for each in cases
            for sessions in (SESSIONS, 2 * SESSIONS)
        ),
        asked.starts,
    )


def print_table(head: str, rows: Iterator[str], number: int) -> None:
    """Print a table as it grows."""
    if number:
        print(head)
        for row in rows:
            print(row, flush=True)


if __name__ == "__main__":
    main()
