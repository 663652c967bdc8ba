"""Write what a study would do, and what probes and searches found, for people."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from advisor.assess.room import hit_cliff
from agentload.cli._print import figure, notice, print_table
from agentload.dispatch.stretches import stretches, where
from agentload.layout.cost import Cost, about, cost
from agentload.layout.division import divide
from agentload.layout.long_run import Fills
from agentload.layout.plan import starts_of
from agentload.model.controls import is_control, is_replica
from agentload.model.plan import Plan
from agentload.study.kinds import Search
from agentload.study.quantity import LIMITS

if TYPE_CHECKING:
    from agentload.ask.probes import Probed
    from agentload.run.capacity import ArmLoad

MOST_SHARES: Final = 8
"""Most nodes whose calls are listed one by one."""
_CACHE: Final[Mapping[str, str]] = {"hit": "another arm's", "no hit": "its own"}


def print_probed(found: "Probed") -> None:
    """Print what servers did with a prompt that is sent twice, and whether arms agree."""
    for caveat in (*found.troubles(), *found.caveats):
        notice(f"caveat: {caveat}")
    caches = {each.arm: _CACHE.get(each.verdict, each.verdict) for each in found.crossed}
    lines = [
        (each.arm, each.verdict, caches.get(each.arm, "–"), each.detail()) for each in found.reuse
    ]
    print_table(("arm", "prefix reuse", "cache", "what was seen"), lines)
    if found.agreement:
        print()
        cells = [
            (
                each.arm,
                f"{each.first_token} of {each.prompts}",
                f"{each.whole} of {each.prompts}",
                str(each.failed),
                each.wrong or "–",
            )
            for each in found.agreement
        ]
        print_table(
            ("arm", f"first token as {found.reference}", "whole answer", "failed", "what is wrong"),
            cells,
        )


def plan_text(
    plan: Plan, expected: Cost, fills: Fills | None = None, *, nodes: int | None = None
) -> str:
    """Return the plan and what it costs, for people.

    *fills* where it is laid out to fill pools, *nodes* where it is divided over that many.
    """
    pairs = len({play.pair for round_ in plan.rounds for play in round_.plays})
    rounds = expected.rounds
    calls = ", ".join(f"{arm} {count:,}" for arm, count in expected.calls_by_arm.items())
    lines = [
        f"plan      {plan.design}, {len(plan.blocks)} blocks, {pairs} pairs, {rounds} rounds",
        *_server_lines(plan),
        f"calls     {calls}",
        f"tokens    {expected.prompt_tokens:,} in, {expected.output_tokens:,} out",
        f"duration  {about(expected.minutes)} (with {expected.assumed})",
    ]
    if nodes is not None:
        lines.append(f"nodes     {_shares(plan, nodes)}")
    if expected.longest_wait is not None:
        lines.append(f"waits     {expected.longest_wait}")
    if expected.priming_minutes:
        lines.append(f"priming   {expected.priming_minutes:.1f} min of it")
    if fills is not None:
        lines += _pool_lines(fills)
    return "\n".join((*lines, "nothing was sent (--dry-run)"))


def _shares(plan: Plan, nodes: int) -> str:
    """Say how many calls each of several nodes sends."""
    shares = [sum(cost(each).calls_by_arm.values()) for each in divide(plan, nodes)]
    if nodes <= MOST_SHARES:
        return f"{nodes}: {', '.join(f'{each:,}' for each in shares)} calls"
    return f"{nodes}: {min(shares):,} to {max(shares):,} calls each"


def _server_lines(plan: Plan) -> Iterator[str]:
    """Say in which order servers play, how often they start, and where they stand."""
    orders = [" + ".join(play.arm for play in round_.plays) for round_ in plan.rounds]
    yield f"order     {' → '.join(orders[:12])}{' → …' if len(orders) > 12 else ''}"
    if starts := starts_of(plan):
        # Each server starts once more to be met, but for the one that plays first.
        met = sum(not is_control(arm) for arm in plan.arms) - 1
        yield f"starts    {starts + met} of servers, one at a time; their time is not counted"
    machines = {play.machine for round_ in plan.rounds for play in round_.plays}
    if replicas := sum(map(is_replica, machines)):
        yield f"replicas  {replicas} of each arm, pair after pair in turn"
        return
    stays = [
        ", ".join(f"{arm} on {machine}" for arm, machine in where(stretch).items())
        for stretch in stretches(plan.rounds)
    ]
    if len(stays) > 1:
        yield f"machines  {', then '.join(stays)}"


def _pool_lines(fills: Fills) -> Iterator[str]:
    """Say how long a block lasts until every pool is full."""
    yield f"block     {fills.lasts_minutes:.0f} min each: {fills.because}"
    for line in fills.lines():
        yield f"pool      {line}"
    if (warning := fills.warning()) is not None:
        yield f"warning   {warning}"


def trial_lines(study: Search, found: "Iterable[ArmLoad]") -> Iterator[str]:
    """Yield, for each arm, the largest load that held in virtual time and those that were tried."""
    assert study.slo is not None, "a simulated search has limits"
    slo = LIMITS.write(study.slo)
    unit = "sessions" if study.find == "max-concurrency" else "starts/s"
    for each in found:
        yield (
            f"{each.arm}: {_bracket(each, unit)} ({slo} for {study.share:.0%} of turns; simulated)"
        )
        yield (
            f"  {unit:>10}{'turns':>9}{'within':>9}{'cached':>9}{'ideal':>7}{'KV peak':>9}"
            f"{'preempted':>11}{'tokens/s':>10}"
        )
        for trial in each.trials:
            shares = (trial.hit_rate, trial.ideal_hit_rate, trial.peak_kv_usage)
            cached, ideal, usage = (figure(share, ".0%") for share in shares)
            yield (
                f"  {trial.load:>10.4g}{trial.turns:>9,}{trial.share:>9.1%}{cached:>9}{ideal:>7}"
                f"{usage:>9}{trial.preemptions or 0:>11,}{trial.output_tokens_per_s:>10,.0f}"
            )
        if unit == "sessions":
            yield from cliff_lines([each])


def cliff_lines(found: "Iterable[ArmLoad]") -> Iterator[str]:
    """Yield, for each arm, from how many sessions on its cache hits less than it could."""
    for each in found:
        valid = [trial for trial in each.trials if trial.void is None]
        tried = [(trial.load, trial.hit_rate, trial.ideal_hit_rate) for trial in valid]
        cliff = hit_cliff(each.arm, None, tried)
        if cliff is not None:
            yield (
                f"{each.arm}: hit rate falls off at {_sessions(cliff.agents)} sessions, to "
                f"{cliff.hit_rate:.0%} of a possible {cliff.ideal_hit_rate:.0%}; "
                f"{_sessions(cliff.kept_at)} fit"
            )


def _bracket(found: "ArmLoad", unit: str) -> str:
    if found.holds is None:
        return f"no load holds, not even {found.trials[0].load:.4g} {unit}"
    holds, low, high = (
        _sessions(each) if unit == "sessions" else f"{each or 0:.3g}"
        for each in (found.holds, found.low, found.high)
    )
    if found.high is None:
        return f"{holds} {unit} or more"
    return f"{holds} {unit} [{low}, {high}]"


def print_limits(found: "Sequence[ArmLoad]") -> None:
    """Print a line an arm: what it carries, with
    its interval, and which trouble there is beyond.
    """
    cells = [
        (
            each.arm,
            _sessions(each.holds),
            _sessions(each.low),
            _sessions(each.high),
            _trouble(each),
            str(len(each.trials)),
        )
        for each in found
    ]
    print_table(("arm", "holds", "surely", "at most", "trouble", "trials"), cells)
    for line in cliff_lines(found):
        print(line)


def _sessions(sessions: float | None) -> str:
    """Write a number of sessions, rounded down: a part of a session serves nobody."""
    if sessions is None:
        return "–"
    return f"{math.floor(sessions)}"


def _trouble(found: "ArmLoad") -> str:
    trial = found.broken
    if trial is None or trial.trouble is None:
        return "–"
    if trial.died is None:
        return trial.trouble
    return f"{trial.trouble} ({trial.died})"
