"""Search for capacity again and again in virtual time:
how often does the interval cover what long runs find?

The long-run value of an arm is the largest number of sessions of which 95% of the
turns hold the service level in three runs of 90 minutes together. Each search draws
its own sessions. Exits with 1 where the lower limit of coverage (Clopper-Pearson,
95%) shows that less than 90% are covered. `python -m benchmarks.capacity
[--searches N] [--minutes M] [--trace chat] [--profile llama-3.1-8b-h100]`
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Mapping
from functools import partial

from scipy import stats

from agentload.layout.steady import Steady, steady
from agentload.model.profile import ArmProfile
from agentload.run.capacity import START, ArmLoad, arm_loads, simulate_trial, try_loads
from agentload.run.files import read_traces
from agentload.run.servers import arms_of
from agentload.run.trial import Trial
from agentload.study.change import extend
from agentload.study.kinds import Search
from agentload.study.parts import Load, Slo, TraceRef, Virtual

PROMISED = 0.90
LONG_S = 90 * 60.0
LONG_RUNS = 3
SLO = Slo(ttft_ms=2000.0, tpot_ms=40.0)


def long_run(study: Search, stock: Steady, arm: ArmProfile) -> int:
    """Return the most sessions that three long runs together hold."""
    long = extend(study, trial_s=LONG_S)
    held = 0
    for sessions in range(1, 1000):
        trials = [
            simulate_trial(long, stock, arm, sessions, 1_000_000 + number)
            for number in range(LONG_RUNS)
        ]
        if sum(each.within for each in trials) < study.share * sum(each.turns for each in trials):
            # One load that misses by chance is no limit: the next one has to miss as well.
            if held < sessions - 1:
                return held
        else:
            held = sessions
    return held


def searches(
    study: Search, stock: Steady, arms: Mapping[str, ArmProfile], count: int
) -> Iterator[tuple[ArmLoad, ...]]:
    """Yield searches, each with draws of its own."""
    for seed in range(count):
        tried: dict[str, tuple[Trial, ...]] = {}
        for name, arm in arms.items():
            own = extend(study, seed=seed)
            attempt = partial(simulate_trial, own, stock, arm)
            tried[name] = try_loads(own, name, attempt, start=START[own.find], others=tried)
        yield arm_loads(tried, share=study.share)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--trace", default="chat")
    parser.add_argument("--profile", default="llama-3.1-8b-h100")
    options = parser.parse_args()
    trace, refs = read_traces((TraceRef(path=options.trace),))
    study = Search(
        traces=refs,
        servers=Virtual(profile=options.profile),
        load=Load(wait_cap_s={"user": 60.0}),
        slo=SLO,
        trial_s=60 * options.minutes,
    )
    stock = steady(trace, study.load.planned())
    arms = {arm.name: arm for arm in arms_of(options.profile)}
    truth = {name: long_run(study, stock, arm) for name, arm in arms.items()}
    print(
        f"{options.trace} on {options.profile}, ttft=2000,tpot=40, trials of "
        f"{options.minutes:g} min; long runs hold {truth}",
        flush=True,
    )
    found: dict[str, list[ArmLoad]] = {name: [] for name in arms}
    for number, each in enumerate(searches(study, stock, arms, options.searches)):
        for one in each:
            found[one.arm].append(one)
        said = (
            f"{one.arm} {one.holds:.2f} [{one.low:.2f}, {one.high:.2f}] in {len(one.trials)}"
            for one in each
            if one.high is not None
        )
        print(f"{number:>4}  {'   '.join(said)}", flush=True)
    is_kept = True
    print(
        f"{'arm':<12}{'long run':>10}{'median':>9}{'half width':>12}{'trials':>8}{'covered':>12} "
        "  at least"
    )
    for name, own in found.items():
        covered = sum(
            math.floor(each.low or 0.0)
            <= truth[name]
            <= (math.inf if each.high is None else each.high)
            for each in own
        )
        widths = [math.sqrt(each.high / each.low) - 1 for each in own if each.low and each.high]
        at_most = stats.binomtest(covered, len(own)).proportion_ci(0.95, method="exact").high
        is_kept = is_kept and bool(at_most >= PROMISED)
        counts = f"{covered} of {len(own)}"
        middle, width = (
            statistics.median(each.holds or 0.0 for each in own),
            statistics.median(widths),
        )
        mean = statistics.mean(len(each.trials) for each in own)
        mark = "✓" if at_most >= PROMISED else "✗"
        print(
            f"{name:<12}{truth[name]:>10}{middle:>9.1f}{width:>12.1%}{mean:>8.1f}{counts:>12} "
            f"  {PROMISED:.0%} {mark}"
        )
    sys.exit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
