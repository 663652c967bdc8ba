"""Draw deployments whose truth is known: drift, autocorrelation,
heavy tails and restart effects over effects from none to large.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from advisor.evidence import AccuracyBucket, Calls, ContextSweep, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Hold the scales of everything that disturbs a
    latency; all in log units but phi and stall_share.
    """

    call: float = 0.08  # scatter of one call
    phi: float = 0.6  # autocorrelation from call to call, over the whole run
    wander: float = 0.04  # scatter of the autocorrelated part
    block: float = 0.01  # what a block adds for no reason one can name
    drift: float = 0.0  # from the first block to the last
    stall_share: float = 0.0  # calls that hit a stall
    stall: float = 1.0  # size of a stall (exponential)
    second: float = 0.0  # what running second in a pair adds
    restart: float = 0.0  # what a start of the server adds, per arm
    session_effect: float = 0.0  # how much the arm's effect differs from session to session


def wandering(steps: Floats, *, phi: float) -> Floats:
    """Return a series of which each value keeps the share *phi* of the one before.

    The filter of `scipy.signal` says the same, and takes two seconds to import.
    """
    return np.array(list(accumulate(steps.tolist(), lambda before, step: step + phi * before)))


def simulated_calls(
    rng: np.random.Generator,
    *,
    pairs: int,
    sessions: int = 6,
    turns: int = 5,
    effect: float,
    noise: Noise,
    machine_effect: float = 0.0,
    swapped: bool = True,
    restarts: int = 1,
    ttft_share: float = 0.3,
) -> tuple[Calls, Calls]:
    """Return (reference, arm) whose true mean log ratio is *effect* in all three latencies."""
    per = sessions * turns
    first = rng.random(pairs) < 0.5  # the arm runs first
    rows = np.arange(2 * pairs * per)
    place = rows // per  # block in time
    pair, second = place // 2, place % 2
    is_arm = (second == 0) == first[pair]
    ability = rng.standard_normal(rows.size)
    wander = wandering(np.sqrt(1 - noise.phi**2) * ability, phi=noise.phi) * noise.wander
    stall = np.where(
        rng.random(rows.size) < noise.stall_share, rng.exponential(noise.stall, rows.size), 0.0
    )
    restart = pair * restarts // pairs
    session = pair * sessions + rows % per // turns
    own_effect = effect + noise.session_effect * rng.standard_normal(pairs * sessions)
    level = (
        own_effect[session] * is_arm
        + noise.drift * rows / rows.size
        + wander
        + noise.call * rng.standard_normal(rows.size)
        + stall
        + noise.block * rng.standard_normal(2 * pairs)[place]
        + noise.second * second
        + noise.restart * rng.standard_normal((restarts, 2))[restart, is_arm.astype(int)]
    )
    half = (pair >= pairs // 2) & swapped
    machine = (
        is_arm ^ half if swapped or machine_effect else np.zeros_like(is_arm)
    )  # one for both, where nothing tells them apart
    level += machine_effect * machine
    within = rows % per
    content = rng.normal(0.0, 0.5, size=(pairs, per))[pair, within]
    turn_ms = 4000.0 * np.exp(level + content)
    prompt = np.round(8000 * np.exp(0.3 * content))
    out = {}
    for name, mine in (("reference", ~is_arm), ("arm", is_arm)):
        out[name] = Calls(
            restart=restart[mine],
            pair=pair[mine],
            block=place[mine],
            session=session[mine],
            turn=(within % turns)[mine],
            start_s=(rows * 0.5)[mine],
            ok=np.ones(int(mine.sum()), dtype=bool),
            ttft_ms=ttft_share * turn_ms[mine],
            tpot_ms=(1 - ttft_share) * turn_ms[mine] / 200,
            turn_ms=turn_ms[mine],
            prompt_tokens=prompt[mine],
            output_tokens=np.full(int(mine.sum()), 201.0),
            machine=machine[mine].astype(np.int64),
        )
    return out["reference"], out["arm"]


LENGTHS = np.array([512, 2048, 4096, 8192, 16384, 32768, 65536, 98304, 125000], dtype=np.float64)


def simulated_sweep(
    rng: np.random.Generator,
    *,
    arm: str,
    intercept: float,
    slope: float,
    pairs: int = 6,
    users: int = 1,
    repeats: int = 3,
    noise: float = 0.01,
    pair_noise: float = 0.005,
    lengths: Floats = LENGTHS,
) -> ContextSweep:
    """Return a sweep whose token latency is intercept + slope *
    users * context, with multiplicative noise by call and by pair.
    """
    shape = (pairs, lengths.size, repeats)
    pair, length, _ = np.indices(shape)
    context = lengths[length]
    # A pair shifts all lengths and tilts the line: clocks and temperature move slowly.
    shift = pair_noise * rng.standard_normal((pairs, 1, 1)) + pair_noise * rng.standard_normal(
        (pairs, 1, 1)
    ) * (context / lengths.max())
    stall = np.where(rng.random(shape) < 0.02, rng.exponential(0.5, shape), 0.0)
    itl = (intercept + slope * users * context) * np.exp(
        shift + noise * rng.standard_normal(shape) + stall
    )
    return ContextSweep(
        arm=arm,
        pair=pair.ravel().astype(np.int64),
        users=np.full(pair.size, users, dtype=np.int64),
        context_tokens=context.ravel(),
        itl_ms=itl.ravel(),
    )


def answers(
    rng: np.random.Generator,
    *,
    arm: str,
    task: str,
    context_tokens: float,
    items: int,
    right: float,
    change: float,
    discordance: float,
) -> AccuracyBucket:
    """Return paired questions whose true difference is
    *change*, *discordance* the share of items that differ.
    """
    lost, won = (discordance - change) / 2, (discordance + change) / 2
    both = right - lost
    counts = rng.multinomial(items, [both, lost, won, 1 - both - lost - won])
    a, b, c, d = (int(each) for each in counts)
    return AccuracyBucket(
        arm=arm,
        task=task,
        context_tokens=context_tokens,
        both=a,
        reference_only=b,
        arm_only=c,
        neither=d,
    )
