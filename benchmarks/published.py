"""Re-derive the published numbers: sweep every shipped profile in virtual time, store it, gather it, and let the advisor fit it.

The fits must recover each profile's slope within 3 % or within their own 95 % interval, and the break-even sets must contain the
profile's true value. Exits with 1 where they do not. `python benchmarks/published.py [--pairs N] [--noise]`
With noise every profile is one server that was started once: its restart factor is in no interval.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from advisor.decide import decide
from advisor.policy import Policy
from advisor.verdict import Decision
from agentload.builtin import names
from agentload.errors import ProfileError
from agentload.layout.plan import plan
from agentload.layout.traces import sweep
from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.profile import ArmProfile
from agentload.report.advise import evidence_of
from agentload.report.policy import Setting
from agentload.run.servers import arms_of
from agentload.run.simulate import Simulation, quiet, store
from agentload.store.database import reading
from agentload.study.kinds import Replay
from agentload.study.parts import Load, TraceRef, Virtual

CONTEXTS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 98304, 120_000)
OUTPUT = 128
STUDIED = Load(sessions=1)
TOLERANCE = 0.03


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    what: str
    true: float | None
    found: float | None
    low: float | None
    high: float | None

    @property
    def holds(self) -> bool:
        """Tell whether the truth was recovered."""
        if self.found is None:
            return self.true is None or self.true > CONTEXTS[-1]  # nothing to find within the lengths that were tried
        if self.true is None:
            return False
        inside = (self.low is None or self.low <= self.true) and (self.high is None or self.true <= self.high)
        return inside or abs(self.found / self.true - 1) <= TOLERANCE


def decided(profile: str, arms: tuple[ArmProfile, ...], pairs: int, folder: Path) -> Decision:
    """Sweep a profile and decide on what was stored."""
    made = plan(
        sweep(CONTEXTS, pairs=pairs, output=OUTPUT, seed=1),
        [arm.name for arm in arms],
        run=f"sweep-{profile}",
        seed=1,
        pairs=pairs,
        load=STUDIED.planned(),
    )
    study = Replay(traces=(TraceRef(path=CONTEXT_SWEEP),), servers=Virtual(profile=profile), pairs=pairs, seed=1, load=STUDIED)
    database = folder / f"{profile}.duckdb"
    store(Simulation(study=study, plan=made, arms={arm.name: arm for arm in arms}, trace_hash=CONTEXT_SWEEP, database=database))
    with reading(database) as connection:
        evidence = evidence_of(connection, made.run, setting=Setting())
    return decide(evidence, Policy())


def lines(profile: str, arms: tuple[ArmProfile, ...], pairs: int, folder: Path) -> list[Line]:
    """Compare what the advisor fits with what the profile says."""
    decision = decided(profile, arms, pairs, folder)
    steps = {arm.name: arm.step for arm in arms if arm.step is not None}
    out = []
    for line in decision.itl:
        slope = line.slope_ms_per_token
        out.append(Line(f"{profile} {line.arm} slope, ms a token", steps[line.arm].decode_ms_per_token, slope.value, slope.low, slope.high))
    reference = steps[decision.reference]
    for each in decision.break_even:
        step = steps[each.arm]
        gain = reference.decode_ms_per_token - step.decode_ms_per_token
        true = (step.decode_ms - reference.decode_ms) / gain if gain > 0 and step.decode_ms > reference.decode_ms else None
        out.append(
            Line(
                f"{profile} {each.arm} break-even ({each.shape}), tokens",
                true,
                each.tokens if true is not None else None,
                each.low,
                each.high,
            )
        )
    return out


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--noise", action="store_true")
    options = parser.parse_args()
    failed = 0
    print(f"{'':<66}{'profile':>11}{'fitted':>11}   95 % interval")
    with tempfile.TemporaryDirectory() as folder:
        for profile in names("profiles"):
            try:
                arms = arms_of(profile)
            except ProfileError:
                continue  # only its accuracy was published
            played = arms if options.noise else tuple(quiet(arms).values())
            for line in lines(profile, played, options.pairs, Path(folder)):
                failed += not line.holds
                cells = "".join("          –" if value is None else f"{value:>11.4g}" for value in (line.true, line.found))
                low, high = ("–" if bound is None else f"{bound:.4g}" for bound in (line.low, line.high))
                print(f"{line.what:<66}{cells}   [{low}, {high}]  {'✓' if line.holds else '✗'}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
