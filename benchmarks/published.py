"""Hold the product against the figures that were published, as they
were printed: `published.yaml` has them, with source and tolerance.

Lines, break-evens and TTFT curves are what the advisor fits to sweeps of a profile in
virtual time, load tests what the engine takes, needles what the emulated arms answer,
recoveries what the profiles' scores come to, pools what the page formula gives. A figure is
met where the product without noise lies within its tolerance, and where the interval over
several starts with noise reaches that far. Exits with 1 where one is not met, and where one
that is known not to be is. `python -m benchmarks.published [--pairs N] [--starts N]`
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final

import yaml
from scipy import stats

from advisor.decide import decide
from advisor.policy import Policy
from advisor.verdict import Decision
from agentload.builtin import find
from agentload.emulator.answers import succeeds
from agentload.emulator.profile import parse
from agentload.evidence.view import run_view
from agentload.kvmath.pool import pool_of
from agentload.layout.plan import Scheme, plan
from agentload.layout.traces import sweep
from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.profile import ArmProfile
from agentload.run.servers import arms_of
from agentload.run.simulate import Simulation, store, without_noise
from agentload.store.database import reading
from agentload.study.kinds import Replay
from agentload.study.parts import Load, TraceRef, Virtual
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import evidence_of

CONTEXTS: Final = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 98304, 120_000)
OUTPUT: Final = 128
STUDIED: Final = Load(sessions=1)
NEEDLES: Final = 4000
FIGURES: Final = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One printed figure."""

    what: str
    profile: str
    arm: str
    value: float
    unit: str
    source: str
    place: str
    tolerance: float
    origin: str
    known: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the product says: without noise, and between which
    ends with it (None: it has no noise there, or no end).
    """

    value: float | None
    low: float | None = None
    high: float | None = None

    def meets(self, figure: Figure) -> bool:
        """Tell whether a figure is met."""
        least, most = (figure.value * (1 + sign * figure.tolerance) for sign in (-1, 1))
        if self.value is None or not least <= self.value <= most:
            return False
        return (self.low is None or self.low <= most) and (self.high is None or least <= self.high)


def figures(path: Path = FIGURES) -> tuple[Figure, ...]:
    """Read the printed figures."""
    document: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    shared = [
        ({name: value for name, value in group.items() if name != "figures"}, group["figures"])
        for group in document["groups"]
    ]
    return tuple(
        Figure(**{**group, **each, "value": float(each["value"])})
        for group, own in shared
        for each in own
    )


def mark(figure: Figure, found: Found) -> str:
    """Say how the product stands to a figure: ✓ met, ✗ not, ≠
    known not to be, ! known not to be and met all the same.
    """
    if figure.known is not None:
        return "!" if found.meets(figure) else "≠"
    return "✓" if found.meets(figure) else "✗"


class Product:
    """What is held against the figures; sweeps are played once each."""

    def __init__(self, folder: Path, *, pairs: int, starts: int) -> None:
        self._folder, self._pairs, self._starts = folder, pairs, starts
        self._swept = cache(self._sweep)
        self._loaded = cache(self._load)

    def found(self, figure: Figure) -> Found:
        """Return what the product says of a figure."""
        match figure.what:
            case "slope" | "intercept" | "ttft_a" | "break_even":
                return self._fitted(figure)
            case "needle_128k":
                return _needle(_arm(figure))
            case "auc_recovery":
                return Found(value=100 * _area(_arm(figure)) / _area(_arm(figure, "bf16")))
            case "pool_ratio":
                return Found(
                    value=pool_of(_arm(figure)).tokens / pool_of(_arm(figure, "bf16")).tokens
                )
            case _:
                return Found(
                    value=getattr(
                        self._loaded(figure.profile, figure.arm), figure.what.removeprefix("load_")
                    )
                )

    def _fitted(self, figure: Figure) -> Found:
        exact = _of(self._swept(figure.profile, None), figure)
        noisy = [
            value
            for seed in range(self._starts)
            if (value := _of(self._swept(figure.profile, seed), figure)) is not None
        ]
        if len(noisy) < 2:
            return Found(value=exact)
        reach = float(stats.t.ppf(0.975, len(noisy) - 1)) * stdev(noisy) / len(noisy) ** 0.5
        return Found(value=exact, low=mean(noisy) - reach, high=mean(noisy) + reach)

    def _sweep(self, profile: str, seed: int | None) -> Decision:
        arms = arms_of(profile)
        swept = sweep(CONTEXTS, pairs=self._pairs, output=OUTPUT, seed=1)
        run = f"sweep-{profile}-{seed}"
        made = plan(
            swept,
            [arm.name for arm in arms],
            run=run,
            seed=seed or 0,
            scheme=Scheme(pairs=self._pairs),
            load=STUDIED.planned(),
        )
        study = Replay(
            traces=(TraceRef(path=CONTEXT_SWEEP),),
            servers=Virtual(profile=profile),
            pairs=self._pairs,
            seed=seed or 0,
            load=STUDIED,
        )
        database = self._folder / f"{run}.duckdb"
        played = without_noise(arms) if seed is None else {arm.name: arm for arm in arms}
        store(
            Simulation(
                study=study, plan=made, arms=played, trace_hash=CONTEXT_SWEEP, database=database
            )
        )
        with reading(database) as connection:
            evidence = evidence_of(connection, run_view(connection, made.run), setting=Setting())
        return decide(evidence, Policy())

    @staticmethod
    def _load(profile: str, arm: str) -> object:
        from tests.emulator.closed_loop import (
            LOAD_TEST,
            closed_loop,
        )  # beside the tests that use it

        (found,) = arms_of(profile, [arm])
        return closed_loop(found, LOAD_TEST, 8)


def _arm(figure: Figure, name: str | None = None) -> ArmProfile:
    deployment = parse(
        find("profiles", figure.profile).read_text(encoding="utf-8"), name=figure.profile
    )
    return next(arm for arm in deployment.arms if arm.name == (name or figure.arm))


def _of(decision: Decision, figure: Figure) -> float | None:
    values: Mapping[str, Callable[[], Iterator[tuple[str, float | None]]]] = {
        "slope": lambda: ((each.arm, each.slope_ms_per_token.value) for each in decision.itl),
        "intercept": lambda: ((each.arm, each.intercept_ms.value) for each in decision.itl),
        "ttft_a": lambda: ((each.arm, each.a.value) for each in decision.ttft),
        "break_even": lambda: ((each.arm, each.tokens) for each in decision.break_even),
    }
    return dict(values[figure.what]()).get(figure.arm)


def _needle(arm: ArmProfile) -> Found:
    prompts = (blake2b(str(number).encode(), digest_size=16).digest() for number in range(NEEDLES))
    right = sum(succeeds(arm, 128_000, seed=1, prompt=prompt) for prompt in prompts)
    ends = stats.binomtest(right, NEEDLES).proportion_ci(0.95, method="wilson")
    return Found(
        value=next(each.percent for each in arm.accuracy if each.context_tokens == 128_000),
        low=100 * ends.low,
        high=100 * ends.high,
    )


def _area(arm: ArmProfile) -> float:
    """Return the area under the scores of MRCR, as the post takes
    it: trapezia over the length on a linear axis, by the range.
    """
    points = sorted(
        (each.context_tokens, each.percent)
        for each in arm.accuracy
        if each.task.startswith("mrcr") and each.context_tokens
    )
    return sum(
        (high - low) * (one + other) / 2 for (low, one), (high, other) in pairwise(points)
    ) / (points[-1][0] - points[0][0])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--starts", type=int, default=5)
    options = parser.parse_args()
    failed = 0
    print(f"{'':<60}{'printed':>11}{'product':>11}{'off':>8}   with noise")
    with tempfile.TemporaryDirectory() as folder:
        product = Product(Path(folder), pairs=options.pairs, starts=options.starts)
        for figure in figures():
            found = product.found(figure)
            said = mark(figure, found)
            failed += said in {"✗", "!"}
            name = f"{figure.profile} {figure.arm} {figure.what} ({figure.origin})"
            off = "–" if found.value is None else f"{found.value / figure.value - 1:+.1%}"
            value = "–" if found.value is None else f"{found.value:.4g}"
            ends = (
                ""
                if found.low is None or found.high is None
                else f"[{found.low:.4g}, {found.high:.4g}]"
            )
            print(
                f"{name:<60}{figure.value:>11.4g}{value:>11}{off:>8}   {ends:<24}{said} "
                f"{figure.known or ''}".rstrip(),
                flush=True,
            )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
