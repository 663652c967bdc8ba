"""Decide between simulated deployments whose engines are not what the twins are fitted as, and count how often that is wrong.

The reference is a published deployment; the candidate's steps are shorter or longer by a known share, and its pool is as large or twice as
large. Engines marked `*` step as long as the next captured batch does, and 2 % longer for each doubling, which no twin knows; every start
of a server, every segment of steps and every answer is drawn anew for each seed. A decision is right where it says "use" of an arm that is
faster by more than the margin, or carries more; "avoid" of one that is slower by more; "no difference" of one within two margins. A fixed
plan, which does not look before its end, plays the pairs that the same noise would need in nine of ten draws.
Prints a row a world: decisions, wrong ones, decided ones, median minutes, those of a fixed plan, and how many took within 20 % of what was
planned question by question. Exits with 1 where more than 5 % of a world's decisions are wrong.
`python benchmarks/decide.py [--draws 20] [--minutes 20] [--worlds equal,faster,slower,larger]`
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from twin import Padded

from advisor.statistics.planning import units_needed
from agentload.builtin import find
from agentload.decision.play import Deciding, Outcome
from agentload.emulator import stepper
from agentload.emulator.steptime import StepClock
from agentload.run.foreground import Audience
from agentload.run.prepared import Place
from agentload.run.servers import arms_of
from agentload.study.kinds import Decide
from agentload.study.parts import Load, Slo, TraceRef, Virtual

MARGIN: Final = 0.03
BASE: Final = "llama-3.1-8b-h100"
OTHER: Final = {"backend": "TRITON_ATTN"}
"""What the candidate is told apart by: two arms that say the same of themselves are a control, and no choice."""
SHARED: Final = ("prefill_ms_per_token", "weights_ms", "host_ms_per_token", "batch8_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A candidate: how much longer its steps are, and whether its pool is twice as large."""

    longer: float = 0.0
    is_larger: bool = False
    is_padded: bool = False

    @property
    def right(self) -> frozenset[str]:
        """Return the verdicts that are no mistake."""
        if self.is_larger or self.longer < -MARGIN:
            return frozenset({"use"}) | ({"no difference"} if not self.is_larger and self.longer > -2 * MARGIN else set())
        return frozenset({"avoid"} if self.longer > MARGIN else set()) | ({"no difference"} if abs(self.longer) < 2 * MARGIN else set())

    def profile(self, folder: Path) -> Path:
        """Write the profile of the reference and of the candidate."""
        made: dict[str, Any] = yaml.safe_load(find("profiles", BASE).read_text(encoding="utf-8"))
        reference = made["arms"]["bf16"]
        step = {**{name: made["step"][name] for name in SHARED}, **reference["step"]}
        scaled = {name: value * (1 + self.longer) for name, value in step.items()}
        candidate = {"kv_dtype": "fp8" if self.is_larger else "bf16", "step": scaled, "accuracy": reference["accuracy"], "server": OTHER}
        made["arms"] = {"bf16": {**reference, "step": step}, "candidate": candidate}
        for arm in made["arms"].values():
            arm.pop("load_tests", None)
        made["step"] = {"known_to_batch": made["step"]["known_to_batch"]}
        path = folder / f"{self.longer:+.2f}-{self.is_larger}.yaml"
        path.write_text(yaml.safe_dump(made), encoding="utf-8")
        return path


WORLDS: Final = {
    "equal": World(),
    "equal*": World(is_padded=True),
    "faster": World(longer=-0.12),
    "faster*": World(longer=-0.12, is_padded=True),
    "slower*": World(longer=0.12, is_padded=True),
    "larger": World(is_larger=True),
    "larger*": World(is_larger=True, is_padded=True),
}


@contextmanager
def padding(profile: Path) -> Iterator[None]:
    """Pad the steps of a profile's own arms, and of nothing that is fitted to them."""
    own = [arm.step for arm in arms_of(str(profile))]

    def clock(**fields: Any) -> StepClock:
        return Padded(**fields) if fields["step"] in own else StepClock(**fields)

    before = vars(stepper)["StepClock"]
    setattr(stepper, "StepClock", clock)  # noqa: B010  # a name that the room does not export
    try:
        yield
    finally:
        setattr(stepper, "StepClock", before)  # noqa: B010  # as above


def decided(world: World, profile: Path, folder: Path, seed: int) -> tuple[Outcome, Decide]:
    """Decide in one draw of a world."""
    study = Decide(
        traces=(TraceRef(path="chat"),),
        servers=Virtual(profile=str(profile)),
        load=Load(sessions=6),
        slo=Slo(ttft_ms=2000.0, tpot_ms=40.0) if world.is_larger else None,
        agents=400 if world.is_larger else None,
        budget_s=5400.0,
        accuracy_margin=0.05,
        seed=seed,
    )
    deciding = Deciding(study=study, place=Place(database=folder / f"{seed}.duckdb"), audience=Audience())
    if not world.is_padded:
        return deciding.play(), study
    with padding(profile):
        return deciding.play(), study


def fixed_minutes(found: list[Outcome]) -> float | None:
    """Return what a plan takes that plays as many pairs as the noisiest tenth of these decisions needs."""
    minutes, spread = [], []
    for each in found:
        assert each.document is not None
        pairs = [asked for asked in each.asked if asked.stage.criterion == "speed"]
        (verdict,) = (one for one in each.document.decision.server if one.arm == "candidate")
        estimate = verdict.pays.estimate
        if pairs and estimate is not None and estimate.low is not None and estimate.high is not None and estimate.n > 1:
            minutes.append(sum(asked.minutes for asked in pairs) / pairs[-1].stage.amount)
            spread.append((estimate.high - estimate.low) / 4 * estimate.n**0.5)
    if len(spread) < 2:
        return None
    return statistics.median(minutes) * units_needed(statistics.quantiles(spread, n=10)[-1], MARGIN)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--worlds", default=",".join(WORLDS))
    asked = parser.parse_args()
    until_s = time.monotonic() + 60 * asked.minutes
    found: dict[str, list[Outcome]] = {name: [] for name in asked.worlds.split(",")}
    with tempfile.TemporaryDirectory() as temporary:
        for seed in range(asked.draws):
            for name, outcomes in found.items():
                folder = Path(temporary) / name
                folder.mkdir(exist_ok=True)
                if time.monotonic() < until_s:
                    outcomes.append(decided(WORLDS[name], WORLDS[name].profile(folder), folder, seed)[0])
    print(f"{'world':<9} {'n':>4} {'wrong':>6} {'decided':>8} {'minutes':>8} {'fixed':>7} {'as planned':>11}")
    worst = 0.0
    for name, outcomes in found.items():
        words = [one.verdict for each in outcomes if each.document for one in each.document.decision.server if one.arm == "candidate"]
        if not words:
            continue
        sure = [word for word in words if word != "test further"]
        wrong = sum(word not in WORLDS[name].right for word in sure) / len(words)
        spent = statistics.median(sum(each.minutes for each in one.asked) for one in outcomes)
        ratios = [sum(each.planned_minutes for each in one.asked) / max(1e-9, sum(each.minutes for each in one.asked)) for one in outcomes]
        planned = sum(abs(ratio - 1) <= 0.2 for ratio in ratios) / len(ratios)
        fixed = fixed_minutes(outcomes)
        row = f"{name:<9} {len(words):>4} {wrong:>6.0%} {len(sure) / len(words):>8.0%} {spent:>8.0f}"
        print(f"{row} {'–' if fixed is None else f'{fixed:.0f}':>7} {planned:>11.0%}", flush=True)
        worst = max(worst, wrong)
    sys.exit(1 if worst > 0.05 else 0)


if __name__ == "__main__":
    main()
