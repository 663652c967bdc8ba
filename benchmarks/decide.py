"""Decide between simulated deployments whose engines are not
what the twins are fitted as, and count how often that is wrong.

The reference is a published deployment; the candidate's steps are shorter or longer by a known
share, and its pool is as large or twice as large. Engines marked `*` step as long as the next
captured batch does, and 2% longer for each doubling, which no twin knows; every start of a
server, every segment of steps and every answer is drawn anew for each seed. In some worlds
starts differ, steps wander for minutes, pauses come from a neighbour, or a server slows down by
a tenth an hour. A decision is right where it says "use" of an arm that is faster by more than
the margin, or carries more; "avoid" of one that is slower by more; "no difference" of one within
two margins. Prints a row a world: decisions, wrong ones, decided ones, median minutes, how many
decisions and how many of their questions took within 20% of what was planned, and the median
CPU seconds of a decision: the larger ones have a peak of agents, which twins play. Exits with 1
where more of a world's decisions are wrong than 5% can explain. `tests.decision.calibration`
grades a thousand deployments whose pairs, trials and answers are drawn instead of simulated call
by call. `python -m benchmarks.decide [--number 5] [--into FILE] [--worlds 'equal;faster *']`
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

import yaml
from scipy import stats

from agentload.builtin import find
from agentload.decision.play import Deciding
from agentload.emulator import stepper
from agentload.emulator.steptime import StepClock
from agentload.run.audience import Audience
from agentload.run.place import StudyPlace
from agentload.run.servers import arms_of
from agentload.study.kinds import Decide
from agentload.study.parts import Load, Slo, TraceRef, Virtual
from benchmarks.twin import Padded

MARGIN: Final = 0.03
BASE: Final = "llama-3.1-8b-h100"
OTHER: Final = {"backend": "TRITON_ATTN"}
"""What the candidate is told apart by: two arms that
say the same of themselves are a control, and no choice.
"""
SHARED: Final = ("prefill_ms_per_token", "weights_ms", "host_ms_per_token", "batch8_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A candidate: how much longer its steps are, and whether its pool is twice as large."""

    longer: float = 0.0
    is_larger: bool = False
    is_padded: bool = False
    noise: Mapping[str, float] = field(default_factory=dict)
    """Of both arms, in place of what the profile has."""

    @property
    def right(self) -> frozenset[str]:
        """Return the verdicts that are no mistake."""
        if self.is_larger or self.longer < -MARGIN:
            return frozenset({"use"}) | (
                {"no difference"} if not self.is_larger and self.longer > -2 * MARGIN else set()
            )
        return frozenset({"avoid"} if self.longer > MARGIN else set()) | (
            {"no difference"} if abs(self.longer) < 2 * MARGIN else set()
        )

    def profile(self, folder: Path) -> Path:
        """Write the profile of the reference and of the candidate."""
        made: dict[str, Any] = yaml.safe_load(find("profiles", BASE).read_text(encoding="utf-8"))
        reference = made["arms"]["bf16"]
        step = {**{name: made["step"][name] for name in SHARED}, **reference["step"]}
        scaled = {name: value * (1 + self.longer) for name, value in step.items()}
        candidate = {
            "kv_dtype": "fp8" if self.is_larger else "bf16",
            "step": scaled,
            "accuracy": reference["accuracy"],
            "server": OTHER,
        }
        made["arms"] = {"bf16": {**reference, "step": step}, "candidate": candidate}
        for arm in made["arms"].values():
            arm.pop("load_tests", None)
        made["noise"] |= self.noise
        made["step"] = {"known_to_batch": made["step"]["known_to_batch"]}
        path = folder / "profile.yaml"
        path.write_text(yaml.safe_dump(made), encoding="utf-8")
        return path


WORLDS: Final = {
    "equal": World(),
    "equal, starts *": World(is_padded=True, noise={"restart_sigma": 0.015}),
    "equal, wander *": World(
        is_padded=True, noise={"sigma": 0.03, "phi": 0.97, "segment_steps": 2048}
    ),
    "equal, slowing *": World(is_padded=True, noise={"drift_per_hour": 0.10}),
    "faster *": World(longer=-0.12, is_padded=True),
    "faster, neighbour *": World(
        longer=-0.12, is_padded=True, noise={"tail_share": 0.02, "tail_ms": 50.0}
    ),
    "slower, starts *": World(longer=0.12, is_padded=True, noise={"restart_sigma": 0.015}),
    "larger *": World(is_larger=True, is_padded=True),
    "larger, wander *": World(
        is_larger=True, is_padded=True, noise={"sigma": 0.03, "phi": 0.97, "segment_steps": 2048}
    ),
}


@contextmanager
def padding(profile: Path) -> Iterator[None]:
    """Pad the steps of a profile's own arms, and of nothing that is fitted to them."""
    own = [arm.step for arm in arms_of(str(profile))]

    def clock(**fields: Any) -> StepClock:
        return Padded(**fields) if fields["step"] in own else StepClock(**fields)

    with mock.patch.object(stepper, "StepClock", clock):
        yield


def decided(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Decide in one draw of a world, and return what became of it."""
    world = WORLDS[name]
    profile = world.profile(folder)
    study = Decide(
        traces=(TraceRef(path="chat"),),
        servers=Virtual(profile=str(profile)),
        load=Load(sessions=6),
        slo=Slo(ttft_ms=2000.0, tpot_ms=40.0) if world.is_larger else None,
        agents=400 if world.is_larger else None,
        budget_s=5400.0,
        seed=seed,
    )
    began_s = time.process_time()
    with padding(profile) if world.is_padded else nullcontext():
        ended = Deciding(
            study=study, place=StudyPlace(database=folder / "x.duckdb"), audience=Audience()
        ).play()
    words = (
        []
        if ended.document is None
        else [one.verdict for one in ended.document.decision.server if one.arm == "candidate"]
    )
    asked = [
        (each.stage.criterion, each.stage.amount, each.planned_minutes, each.minutes)
        for each in ended.asked
    ]
    return {
        "world": name,
        "seed": seed,
        "word": words[0] if words else "test further",
        "ending": ended.ending,
        "asked": asked,
        "cpu_s": time.process_time() - began_s,
    }


def is_near(planned: float, took: float) -> bool:
    """Tell whether a plan was within 20% of what it took."""
    return abs(planned - took) <= 0.2 * took


def row(name: str, found: list[dict[str, Any]]) -> tuple[str, float]:
    """Return a row of the table, and how likely so many
    wrong decisions are where one in twenty may be wrong.
    """
    sure = [each["word"] for each in found if each["word"] != "test further"]
    wrong = sum(word not in WORLDS[name].right for word in sure)
    spent = [sum(took for *_, took in each["asked"]) for each in found]
    plans = [
        is_near(sum(planned for *_, planned, _ in each["asked"]), took)
        for each, took in zip(found, spent, strict=True)
    ]
    parts = [
        is_near(planned, took) for each in found for *_, planned, took in each["asked"] if took > 0
    ]
    shares = (
        f"{wrong / len(found):>6.0%} {len(sure) / len(found):>8.0%} "
        f"{statistics.median(spent):>8.0f}"
    )
    line = (
        f"{name:<20} {len(found):>4} {shares} {sum(plans) / len(plans):>11.0%} "
        f"{sum(parts) / len(parts):>10.0%} "
        f"{statistics.median(each['cpu_s'] for each in found):>6.1f}"
    )
    return line, float(stats.binom.sf(wrong - 1, len(found), 0.05))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=3, help="seeds of each world")
    parser.add_argument(
        "--into", type=Path, help="keep what is finished here, and continue from it"
    )
    parser.add_argument("--worlds", default=None, help="names, separated by semicolons")
    asked = parser.parse_args()
    names = list(WORLDS) if asked.worlds is None else asked.worlds.split(";")
    kept = (
        []
        if asked.into is None or not asked.into.exists()
        else asked.into.read_text(encoding="utf-8").splitlines()
    )
    found = {(each["world"], each["seed"]): each for each in map(json.loads, kept)}
    for seed in range(asked.number):
        for name in names:
            if (name, seed) in found:
                continue
            with tempfile.TemporaryDirectory() as folder:
                found[name, seed] = decided(name, seed, Path(folder))
            if asked.into is not None:
                with asked.into.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found[name, seed]) + "\n")
    print(
        f"{'world':<20} {'n':>4} {'wrong':>6} {'decided':>8} {'minutes':>8} "
        f"{'as planned':>11} {'questions':>10} {'cpu s':>6}"
    )
    rows = [row(name, [found[name, seed] for seed in range(asked.number)]) for name in names]
    print("\n".join(line for line, _ in rows))
    sys.exit(1 if min(likely for _, likely in rows) < 0.05 / len(rows) else 0)


if __name__ == "__main__":
    main()
