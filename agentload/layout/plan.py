"""Lay out a comparison: the same blocks on every arm, in an order that cancels drift.

Theory of operation
-------------------
A plan is a list of rounds, played one after the other. A round has one play, or with the design
`parallel` one play of each arm, side by side. A *play* is one block of sessions on one arm.

Blocks and pairs. The trace is cut into blocks (`blocks.cut`), or the blocks are windows that were
laid out already. Pair n is block n, modulo the number of blocks, played once on every arm. Arms
are compared within pairs alone, so whatever all plays of a pair share cancels: the sessions, and
about the same minutes of the day. A run that is given more pairs later keeps the blocks with
which it began (`Scheme.blocks`), and its first pairs stay as they were.

Salts. The salt of a play replaces the head of every context. It is the run's name and the pair's
number, so every arm is sent the same bytes, and with a cold cache no pair finds anything of an
earlier one. With a warm cache all pairs have one salt. A control, the second copy of an arm on the
same server, has a mark of its own beside the salt: else it would be served from what the first
copy has left in the cache. A pair that is invalid is played again under another salt, which is
the run's business and not the plan's.

Orders. The order of the arms is drawn for every second pair, and the pair after it mirrors that
order. Linear drift of the machines then cancels between the two. Three arms on eight replicas
are also rotated, as a mirror would leave the middle arm in its place.

Places. By default an arm stays on one server. With `swap` the two arms change machines half way,
so that a slow machine slows both. With `replicas` pairs take turns: each arm plays a pair on its
own replica of the same name. Servers that are started for the run (`with_starts`) share a start
among several pairs: all pairs of a start are played on one arm before the next arm's server
starts. Warm-up plays come before the first pair of each place. They have negative pair numbers,
hence salts of their own, and are never evidence.

Everything is drawn from the plan's seed, so the same study lays out the same plan, to the byte.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from random import Random
from typing import Final

from agentload.dispatch.arrivals import rng_of
from agentload.dispatch.stretches import stretches
from agentload.errors import PlanError
from agentload.layout.agentx import RULES, ruled_blocks
from agentload.layout.blocks import cut
from agentload.layout.steady import Steady, steady
from agentload.layout.windows import Laid, check_room, windows
from agentload.model.commands import Limits
from agentload.model.controls import is_control
from agentload.model.plan import Block, Cache, ClosedLoop, Design, Load, Plan, Play, Round
from agentload.model.record import Record
from agentload.model.trace import Trace
from agentload.study.kinds import Replay, Sweep
from agentload.study.parts import Live, Timeouts

SECOND: Final = 1_000_000_000
MOST_PAIRS: Final = 100_000
"""The most pairs of a plan: a year of five-minute pairs, laid out in seconds.

More is a typing error, and would be laid out until memory ends.
"""


class Scheme(Record):
    """Say how often, in which order and where the arms of a plan play their blocks."""

    pairs: int = 6
    design: Design = "interleaved"
    cache: Cache = "cold"
    warmup: bool = False
    """Whether every arm first plays the first block once more, which does not count."""
    machines: Sequence[str] = ()
    """Where each arm starts."""
    swap: bool = False
    """Whether the two arms change machines for the second half, and warm up once more."""
    replicas: Sequence[str] = ()
    """What pairs take turns on. Every arm has each of them: a start that was drawn already."""
    blocks: int | None = None
    """Into how many blocks the trace is cut, if a run gets more pairs than it started with."""

    @property
    def began(self) -> int:
        """Number of pairs with which the run started."""
        return self.blocks or self.pairs


SIX_PAIRS: Final = Scheme()


def plan(
    trace: Trace,
    arms: Sequence[str],
    *,
    run: str,
    seed: int = 0,
    scheme: Scheme = SIX_PAIRS,
    load: Load | None = None,
    limits: Limits | None = None,
    laid: Sequence[Block] = (),
) -> Plan:
    """Plan the plays of the trace's blocks on each arm.

    With fewer blocks than pairs, blocks repeat under another salt. *laid* are blocks that were
    laid out already, used instead of the trace's.
    """
    _check_arms(arms, scheme)
    stays = _stays(arms, scheme)
    blocks = tuple(laid) or cut(trace.sessions, scheme.began)
    orders = _orders(arms, scheme.pairs, rng_of(seed, "order"), replicas=len(scheme.replicas) or 1)
    dealt = _Deal(run=run, arms=arms, scheme=scheme, blocks=blocks, orders=orders).rounds(stays)
    return Plan(
        run=run,
        seed=seed,
        header=trace.header,
        arms=tuple(arms),
        blocks=blocks,
        rounds=tuple(Round(index=index, plays=plays) for index, plays in enumerate(dealt)),
        load=load or Load(),
        limits=limits or Limits(),
        design=scheme.design,
        cache=scheme.cache,
    )


def _check_arms(arms: Sequence[str], scheme: Scheme) -> None:
    """Raise PlanError where the arms cannot play what the scheme says."""
    pairs = scheme.pairs
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
    if scheme.design == "parallel" and any(map(is_control, arms)):
        raise PlanError(
            "--aa plays one server twice, which --design parallel would do at the same time",
            hint="--design interleaved --aa ARM",
        )


class _Stay(Record, kw_only=False):
    """Successive pairs during which no arm changes its machine."""

    pairs: range
    machines: Mapping[str, str]
    """Machine or replica of each arm; empty where none are named."""


class _Deal(Record):
    """Deal the blocks to the arms, pair by pair."""

    run: str
    arms: Sequence[str]
    scheme: Scheme
    blocks: Sequence[Block]
    orders: Sequence[tuple[str, ...]]
    """Order of the arms in each pair."""

    def rounds(self, stays: Sequence[_Stay]) -> Iterator[tuple[Play, ...]]:
        """Yield the plays of each round: those that run side by side."""
        # A replica is the same server for all of its pairs, so each is warmed up once.
        places = len(self.scheme.replicas) or self.scheme.pairs
        for number, stay in enumerate(stays):
            if self.scheme.warmup and number < places:
                for arm in self.arms:
                    yield (self._play(-1 - number, arm, stay),)
            yield from self._in_order(stay)

    def _in_order(self, stay: _Stay) -> Iterator[tuple[Play, ...]]:
        plays = {
            pair: {arm: self._play(pair, arm, stay) for arm in self.arms} for pair in stay.pairs
        }
        match self.scheme.design:
            case "interleaved":
                for pair, by_arm in plays.items():
                    for arm in self.orders[pair]:
                        yield (by_arm[arm],)
            case "parallel":
                for by_arm in plays.values():
                    yield tuple(by_arm.values())
            case "sequential":
                for arm in self.arms:
                    for by_arm in plays.values():
                        yield (by_arm[arm],)

    def _play(self, pair: int, arm: str, stay: _Stay) -> Play:
        """Return the play of a pair on an arm; a negative pair warms the arm up."""
        block = self.blocks[max(pair, 0) % len(self.blocks)]
        is_cold = self.scheme.cache == "cold"
        return Play(
            block=block.index,
            arm=arm,
            pair=pair,
            salt=f"{self.run}/{pair}" if is_cold else f"{self.run}/warm",
            own_salt=arm if is_control(arm) else "",
            warmup=pair < 0,
            machine=stay.machines.get(arm),
        )


def _check_reached(parts: Sequence[Block], sessions: int) -> None:
    """Raise PlanError where no block has *sessions* sessions to keep going at once.

    Figures of a load that is never reached say nothing about that load.
    """
    most = max(_roots(part, sessions) for part in parts)
    if most < sessions:
        in_all = f", in {len(parts)} blocks of at most {most}" if len(parts) > 1 else ""
        raise PlanError(
            f"--sessions {sessions} is never reached: the trace has fewer sessions{in_all}",
            hint=f"--capacity {sessions} starts sessions again and again; else --sessions "
            f"{max(1, most)}, fewer --pairs, or a larger trace",
        )


def _roots(block: Block, most: int) -> int:
    """Count the sessions of a block that no other session spawns; stop at *most*."""
    roots = (each for each in block.sessions if each.start_s is not None)
    return sum(1 for _ in islice(roots, most))


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
        case Sweep():
            scheme = Scheme(pairs=study.pairs)
            load = Load(arrivals=ClosedLoop(sessions=1))
        case Replay():
            if laid is None and study.benchmark is not None:
                laid = _laid_benchmark(study, study.benchmark, trace)
            if laid is None and study.windows is not None:
                laid = laid_windows(study, steady(trace, study.load.planned()))
            scheme = Scheme(
                pairs=study.pairs,
                design=study.design,
                cache=study.cache,
                warmup=study.warmup,
                machines=machines,
                swap=study.swap,
                replicas=replicas,
                blocks=study.blocks,
            )
            load = study.load.planned() if laid is None else laid.load
    made = plan(
        trace,
        arms,
        run=run,
        seed=study.seed,
        scheme=scheme,
        load=load,
        limits=limits_of(study.timeouts),
        laid=() if laid is None else laid.blocks,
    )
    if isinstance(study, Replay) and laid is None and isinstance(made.load.arrivals, ClosedLoop):
        _check_reached(made.blocks, made.load.arrivals.sessions)
    if isinstance(study.servers, Live) and study.servers.launch:
        return with_starts(made, study.servers.restarts)
    return made


def limits_of(timeouts: Timeouts) -> Limits:
    """Return the time limits of a plan's calls."""
    return Limits(
        first_ns=round(timeouts.first_timeout_s * SECOND),
        idle_ns=round(timeouts.idle_timeout_s * SECOND),
        total_ns=round(timeouts.total_timeout_s * SECOND),
    )


def _laid_benchmark(study: Replay, name: str, trace: Trace) -> Laid:
    """Lay out the blocks that a benchmark's rules prescribe."""
    return ruled_blocks(
        RULES[name], trace, study.load.planned(), pairs=study.pairs, seed=study.seed
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
    for pair in range(pairs):
        turn, place = divmod(pair, replicas)
        order = drawn[turn - turn % 2]
        if (len(arms), replicas) == TURNED:
            by = place // 2 % len(arms)
            order = (*order[by:], *order[:by])
        orders.append(order if (turn + place) % 2 == 0 else order[::-1])
    return orders


def _stays(arms: Sequence[str], scheme: Scheme) -> list[_Stay]:
    """Return the pairs between two changes of machines, with each arm's machine.

    Pairs take turns on replicas; each is then a stay of its own.
    """
    pairs = scheme.pairs
    replicas = scheme.replicas
    if replicas and (scheme.swap or scheme.design == "sequential"):
        raise PlanError(
            "pairs take turns on replicas",
            hint="leave out --swap and --design sequential, or give each arm one URL",
        )
    if replicas:
        return [
            _Stay(range(pair, pair + 1), dict.fromkeys(arms, replicas[pair % len(replicas)]))
            for pair in range(pairs)
        ]
    if scheme.swap:
        _check_swap(arms, scheme)
    between = stays(pairs, scheme.began) if scheme.swap else (range(pairs),)
    return [
        _Stay(own, placement(arms, scheme.machines, changes=changes))
        for changes, own in enumerate(between)
    ]


PAIRED = 2
"""Number of arms, and of machines, that one change balances.

More would need as many changes as there are machines.
"""


def _check_swap(arms: Sequence[str], scheme: Scheme) -> None:
    """Raise PlanError unless the two arms can change machines half way."""
    pairs = scheme.pairs
    began = scheme.began
    if len(arms) != PAIRED:
        raise PlanError(
            f"--swap exchanges two arms, got {len(arms)}: {', '.join(arms)}",
            hint="compare two at a time",
        )
    if len(set(scheme.machines)) != PAIRED:
        named = ", ".join(scheme.machines) or "none"
        raise PlanError(
            f"--swap needs each arm on a machine of its own, got {named}",
            hint="'machine' in the arms file; docs/endpoints.md shows both ways",
        )
    if scheme.design == "sequential":
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
    if not machines:
        return {}
    return {
        arm: machines[(position + changes) % len(machines)] for position, arm in enumerate(arms)
    }


def with_starts(made: Plan, restarts: int | None = None) -> Plan:
    """Divide the pairs of an interleaved plan over *restarts* starts of each arm's server.

    None means a start for each pair. All pairs of a start are played on one arm before the next
    arm's server is started, in the order that was drawn for the pairs: a start is a random
    factor that pairs share, and drift still cancels.
    """
    played = [play for round_ in made.rounds for play in round_.plays]
    if made.design != "interleaved" or any(play.warmup for play in played):
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
    for play in played:
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
        first = _share(number, starts, len(pairs))
        end = _share(number + 1, starts, len(pairs))
        for place, arm in enumerate(plays[pairs[number]]):
            start = number * len(made.arms) + place
            for pair in pairs[first:end]:
                rounds.append(Round(index=len(rounds), plays=(plays[pair][arm],), start=start))
    return replace(made, rounds=tuple(rounds))


def _share(number: int, shares: int, things: int) -> int:
    """Return where the share *number* of some things begins, all shares about equally large."""
    return -(-number * things // shares)


def starts_of(made: Plan) -> int:
    """Return how many starts of servers a plan has; 0: the servers run all the time."""
    return len({round_.start for round_ in made.rounds} - {None})
