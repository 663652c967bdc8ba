"""Lay out a comparison: the same blocks on every arm, in an order that cancels drift."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from random import Random
from typing import Final

from agentload.dispatch.arrivals import rng_of
from agentload.dispatch.stretches import stretches
from agentload.errors import PlanError
from agentload.layout.windows import Laid, Steady, check_room, steady, windows
from agentload.model.commands import Limits
from agentload.model.controls import is_control
from agentload.model.plan import Block, Cache, ClosedLoop, Design, Load, Plan, Play, Round
from agentload.model.trace import Session, Trace
from agentload.study.kinds import Replay, Sweep
from agentload.study.parts import Live, Timeouts

SECOND: Final = 1_000_000_000
MOST_PAIRS: Final = 100_000
"""The most pairs of a plan: a year of five-minute pairs, laid out in seconds.

More is a typing error, and would be laid out until memory ends.
"""


def plan(
    trace: Trace,
    arms: Sequence[str],
    *,
    run: str,
    seed: int = 0,
    pairs: int = 6,
    warmup: bool = False,
    design: Design = "interleaved",
    cache: Cache = "cold",
    load: Load | None = None,
    limits: Limits | None = None,
    machines: Sequence[str] = (),
    swap: bool = False,
    replicas: Sequence[str] = (),
    blocks: int | None = None,
    laid: Sequence[Block] = (),
) -> Plan:
    """Plan *pairs* plays of the trace's blocks on each arm.

    With fewer blocks than pairs, blocks repeat under another salt.
    With *warmup* every arm first plays the first block once more, which does not count.
    *machines* say where each arm starts; with *swap* the two arms change machines for
    the second half of the pairs, and warm up once more. Pairs take turns on
    *replicas*, which every arm has: each is a start that was drawn already. *blocks* is the
    number of blocks into which the trace is cut, if a run gets more pairs than it started with.
    *laid* are blocks that were laid out already, used instead of the trace's.
    """
    if not arms:
        raise PlanError(
            "no arm to play on", hint="agentload replay TRACE --endpoints NAME=URL,NAME=URL"
        )
    if len(set(arms)) < len(arms):
        raise PlanError(
            f"arm names are not unique: {', '.join(arms)}",
            hint="give each endpoint its own name: --endpoints a=URL,b=URL",
        )
    if pairs < 1:
        raise PlanError(f"'pairs' must be >= 1, got {pairs}", hint="agentload replay --help")
    if pairs > MOST_PAIRS:
        raise PlanError(
            f"'pairs' must be <= {MOST_PAIRS:,}, got {pairs:,}", hint="agentload replay --help"
        )
    if design == "parallel" and any(map(is_control, arms)):
        raise PlanError(
            "--aa plays one server twice, which --design parallel would do at the same time",
            hint="--design interleaved --aa ARM",
        )
    in_turn = replicas and _in_turn(
        arms, replicas, pairs=pairs, is_fixed=swap or design == "sequential"
    )
    if swap:
        check_swap(arms, machines, pairs=pairs, began=blocks or pairs, design=design)
    parts = tuple(laid) or cut(trace.sessions, blocks or pairs)
    orders = _orders(arms, pairs, rng_of(seed, "order"), replicas=len(replicas) or 1)
    rounds: list[tuple[Play, ...]] = []
    for changes, (own, at) in enumerate(
        in_turn or _in_place(arms, machines, pairs=pairs, began=blocks or pairs, swap=swap)
    ):
        play = partial(_play, run=run, cache=cache, machines=at)
        if warmup and changes < (len(replicas) or pairs):
            rounds += [(play(parts[0].index, -1 - changes, arm, warmup=True),) for arm in arms]
        plays = {
            pair: {arm: play(parts[pair % len(parts)].index, pair, arm) for arm in arms}
            for pair in own
        }
        match design:
            case "interleaved":
                rounds += [(plays[pair][arm],) for pair in own for arm in orders[pair]]
            case "parallel":
                rounds += [tuple(plays[pair][arm] for arm in arms) for pair in own]
            case "sequential":
                rounds += [(plays[pair][arm],) for arm in arms for pair in own]
    return Plan(
        run=run,
        seed=seed,
        header=trace.header,
        arms=tuple(arms),
        blocks=parts,
        rounds=tuple(Round(index=i, plays=r) for i, r in enumerate(rounds)),
        load=load or Load(),
        limits=limits or Limits(),
        design=design,
        cache=cache,
    )


def _check_reached(parts: Sequence[Block], sessions: int) -> None:
    """Raise PlanError where no block has *sessions* sessions to keep going at once.

    Figures of a load that is never reached say nothing about that load.
    """
    most = max(
        sum(
            1
            for _ in islice((each for each in part.sessions if each.start_s is not None), sessions)
        )
        for part in parts
    )
    if most < sessions:
        in_all = f", in {len(parts)} blocks of at most {most}" if len(parts) > 1 else ""
        raise PlanError(
            f"--sessions {sessions} is never reached: the trace has fewer sessions{in_all}",
            hint=f"--capacity {sessions} starts sessions again and again; else --sessions "
            f"{max(1, most)}, fewer --pairs, or a larger trace",
        )


def of_study(
    study: Replay | Sweep,
    trace: Trace,
    arms: Sequence[str],
    *,
    run: str,
    laid: Laid | None = None,
    machines: Sequence[str] = (),
    replicas: Sequence[str] = (),
) -> Plan:
    """Plan what a study asks for of a trace.

    Servers that are launched for the study get their starts. *laid* is the layout of a long run,
    *machines* are where each arm starts, *replicas* are what pairs take turns on.
    """
    match study:
        case Sweep(pairs=pairs, seed=seed):
            load = Load(arrivals=ClosedLoop(sessions=1))
            made = plan(
                trace,
                arms,
                run=run,
                seed=seed,
                pairs=pairs,
                load=load,
                limits=limits_of(study.timeouts),
            )
        case Replay():
            if laid is None and study.windows is not None:
                laid = laid_windows(study, steady(trace, study.load.planned()))
            made = plan(
                trace,
                arms,
                run=run,
                seed=study.seed,
                pairs=study.pairs,
                warmup=study.warmup,
                design=study.design,
                cache=study.cache,
                load=study.load.planned() if laid is None else laid.load,
                limits=limits_of(study.timeouts),
                machines=machines,
                swap=study.swap,
                replicas=replicas,
                blocks=study.blocks,
                laid=() if laid is None else laid.blocks,
            )
    if isinstance(study, Replay) and laid is None and isinstance(made.load.arrivals, ClosedLoop):
        _check_reached(made.blocks, made.load.arrivals.sessions)
    return (
        with_starts(made, study.servers.restarts)
        if isinstance(study.servers, Live) and study.servers.launch
        else made
    )


def limits_of(timeouts: Timeouts) -> Limits:
    """Return the time limits of a plan's calls."""
    return Limits(
        first_ns=round(timeouts.first_timeout_s * SECOND),
        idle_ns=round(timeouts.idle_timeout_s * SECOND),
        total_ns=round(timeouts.total_timeout_s * SECOND),
    )


def laid_windows(study: Replay, stock: Steady) -> Laid:
    """Lay out the windows of the trace that a study asks for.

    Raises PlanError where the trace has not enough time for them.
    """
    assert study.windows is not None
    check_room(stock, study.windows)
    return windows(stock, number=study.windows, pairs=study.pairs, seed=study.seed)


def balanced_orders(arms: Sequence[str], pairs: int, rng: Random) -> list[tuple[str, ...]]:
    """Draw the order of the arms for each pair; every second pair mirrors the one before.

    Linear drift then cancels.
    """
    orders: list[tuple[str, ...]] = []
    while len(orders) < pairs:
        drawn = sorted(arms, key=lambda _: rng.random())
        orders += [tuple(drawn), tuple(reversed(drawn))]
    return orders[:pairs]


TURNED: Final = (3, 8)
"""The number of arms and of replicas for which orders are also rotated.

A mirror leaves the middle of three arms in its place, for sixteen pairs.
"""


def _orders(
    arms: Sequence[str], pairs: int, rng: Random, *, replicas: int
) -> list[tuple[str, ...]]:
    """Draw the order of the arms for each pair.

    Neighbouring pairs mirror each other, and so do successive pairs of a replica.
    """
    drawn = balanced_orders(arms, pairs + 2 * replicas, rng)
    orders: list[tuple[str, ...]] = []
    for turn, place in (divmod(pair, replicas) for pair in range(pairs)):
        order = drawn[turn - turn % 2]
        if (len(arms), replicas) == TURNED:
            by = place // 2 % len(arms)
            order = (*order[by:], *order[:by])
        orders.append(order if (turn + place) % 2 == 0 else order[::-1])
    return orders


def _in_turn(
    arms: Sequence[str], replicas: Sequence[str], *, pairs: int, is_fixed: bool
) -> list[tuple[range, dict[str, str]]]:
    """Return each pair with the replica on which all arms play it; replicas take turns."""
    if is_fixed:
        raise PlanError(
            "pairs take turns on replicas",
            hint="leave out --swap and --design sequential, or give each arm one URL",
        )
    return [
        (range(pair, pair + 1), dict.fromkeys(arms, replicas[pair % len(replicas)]))
        for pair in range(pairs)
    ]


def _in_place(
    arms: Sequence[str], machines: Sequence[str], *, pairs: int, began: int, swap: bool
) -> list[tuple[range, dict[str, str]]]:
    """Return the pairs between two changes of machines, with each arm's machine."""
    between = stays(pairs, began) if swap else (range(pairs),)
    return [
        (own, placement(arms, machines, changes=changes)) for changes, own in enumerate(between)
    ]


def _play(
    block: int,
    pair: int,
    arm: str,
    *,
    run: str,
    cache: Cache,
    machines: Mapping[str, str],
    warmup: bool = False,
) -> Play:
    mark = arm if is_control(arm) else ""
    salt = f"{run}/{pair}" if cache == "cold" else f"{run}/warm"
    return Play(
        block=block,
        arm=arm,
        pair=pair,
        salt=salt,
        mark=mark,
        warmup=warmup,
        machine=machines.get(arm),
    )


def families(sessions: Iterable[Session]) -> list[list[Session]]:
    """Group sessions that spawn, await or quote each other, in order of their first member."""
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while (above := leader.setdefault(name, name)) != name:
            leader[name] = name = leader[above]
        return name

    kept = list(sessions)
    for session in kept:
        find(session.session)
        for turn in session.turns:
            partners = [
                *turn.spawn,
                *(ref.session for ref in turn.after),
                *(s.source.session for s in turn.add if s.source),
            ]
            for partner in partners:
                leader[find(partner)] = find(session.session)
    groups: dict[str, list[Session]] = {}
    for session in kept:
        groups.setdefault(find(session.session), []).append(session)
    return list(groups.values())


def cut(sessions: Iterable[Session], count: int) -> tuple[Block, ...]:
    """Cut *sessions* into at most *count* blocks of about equally many turns.

    Neighbours in time stay together, and so do families.
    """
    if count == 1:
        return (Block(index=0, sessions=sessions),)
    groups = families(sessions)
    turns = [sum(len(s.turns) for s in group) for group in groups]
    total, count = sum(turns), min(count, len(groups))
    blocks: list[list[Session]] = [[]]
    before = 0
    for position, (group, size) in enumerate(zip(groups, turns, strict=True)):
        left_groups, left_blocks = len(groups) - position, count - len(blocks)
        is_full = before + size / 2 >= total * len(blocks) / count
        if blocks[-1] and left_blocks > 0 and (is_full or left_groups == left_blocks):
            blocks.append([])
        blocks[-1].extend(group)
        before += size
    return tuple(Block(index=i, sessions=_from_zero(block)) for i, block in enumerate(blocks))


def _from_zero(sessions: Sequence[Session]) -> tuple[Session, ...]:
    first_s = min((s.start_s for s in sessions if s.start_s is not None), default=0.0)
    return tuple(
        s if s.start_s is None else replace(s, start_s=s.start_s - first_s) for s in sessions
    )


PAIRED = 2
"""Number of arms, and of machines, that one change balances.

More would need as many changes as there are machines.
"""


def check_swap(
    arms: Sequence[str], machines: Sequence[str], *, pairs: int, began: int, design: Design
) -> None:
    """Raise PlanError unless the two arms can change machines half way."""
    if len(arms) != PAIRED:
        raise PlanError(
            f"--swap exchanges two arms, got {len(arms)}: {', '.join(arms)}",
            hint="compare two at a time",
        )
    if len(set(machines)) != PAIRED:
        named = ", ".join(machines) or "none"
        raise PlanError(
            f"--swap needs each arm on a machine of its own, got {named}",
            hint="'machine' in the arms file; docs/endpoints.md shows both ways",
        )
    if design == "sequential":
        raise PlanError(
            "--swap goes with blocks that alternate or run side by side",
            hint="--design parallel --swap",
        )
    if began % 2:
        raise PlanError(
            f"--swap needs as many pairs on each machine, got {began}", hint=f"--pairs {began + 1}"
        )
    if pairs % began:
        said = f"--swap needs as many pairs on each machine, and began with {began}, got {pairs}"
        raise PlanError(said, hint=f"--pairs {pairs + began - pairs % began}")


def stays(pairs: int, began: int) -> tuple[range, ...]:
    """Return the pairs between two changes of machines.

    The run *began* with that number of pairs, and may have been given more in whole multiples.
    """
    edges = (0, *range(began // 2, pairs, began), pairs)
    return tuple(range(*each) for each in pairwise(edges))


def placement(arms: Sequence[str], machines: Sequence[str], *, changes: int) -> dict[str, str]:
    """Return each arm's machine after *changes* changes; empty where no machines are named."""
    return (
        {arm: machines[(position + changes) % len(machines)] for position, arm in enumerate(arms)}
        if machines
        else {}
    )


def with_starts(made: Plan, restarts: int | None = None) -> Plan:
    """Divide the pairs of an interleaved plan over *restarts* starts of each arm's server.

    None means a start for each pair. All pairs of a start are played on one arm before the next
    arm's server is started, in the order that was drawn for the pairs: a start is a random
    factor that pairs share, and drift still cancels.
    """
    if made.design != "interleaved" or any(
        play.warmup for round_ in made.rounds for play in round_.plays
    ):
        raise PlanError(
            "servers that are started in turn are played interleaved and without a warm-up block",
            hint="each start is primed: see --launch",
        )
    if len(stretches(made.rounds)) > 1:
        raise PlanError(
            "--swap needs servers that run all the time, on two machines",
            hint="leave out --launch, or --swap",
        )
    plays: dict[int, dict[str, Play]] = {}
    for round_ in made.rounds:
        for play in round_.plays:
            plays.setdefault(play.pair, {})[play.arm] = play
    pairs = list(plays)
    starts = len(pairs) if restarts is None else restarts
    if not 1 <= starts <= len(pairs):
        raise PlanError(
            f"{len(pairs)} pairs cannot be divided over {starts} starts",
            hint=f"--restarts 1 to {len(pairs)}, or more --pairs",
        )
    rounds: list[Round] = []
    for number in range(starts):
        shared = [
            pair for position, pair in enumerate(pairs) if position * starts // len(pairs) == number
        ]
        for place, arm in enumerate(plays[pairs[number]]):
            rounds += [
                Round(
                    index=len(rounds) + position,
                    plays=(plays[pair][arm],),
                    start=number * len(made.arms) + place,
                )
                for position, pair in enumerate(shared)
            ]
    return replace(made, rounds=tuple(rounds))


def starts_of(made: Plan) -> int:
    """Return how many starts of servers a plan has; 0: the servers run all the time."""
    return len({round_.start for round_ in made.rounds} - {None})
