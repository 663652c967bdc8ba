"""What `trace show` has to say, as data and as lines: the overview,
what each arm of a profile makes of it, what production does.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from agentload.cli._print import blocks, table
from agentload.cli._production import production
from agentload.emulator.profile import arm as arm_of
from agentload.emulator.profile import read
from agentload.exposition.likeness import Figures, Likeness, MeanAndQuantiles, likeness
from agentload.kvmath.layout import bytes_per_token
from agentload.kvmath.pool import GIB, pool_of
from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.model.trace import Trace
from agentload.report.format import number, plural
from agentload.tracefile.load import DECODE_TOKENS_PER_S, PREFILL_TOKENS_PER_S, LoadCurve, load
from agentload.tracefile.overview import SHARES, Overview, overview

LENGTHS: Final = ("count", *(f"q{share * 100:g}" for share in SHARES), "mean")
ARMS: Final = (
    "arm",
    "KV bytes/token",
    "pool tokens",
    "reuse",
    "calls hold at most",
    "sessions hold at most",
)
_COMPARED: Final = (0.5, 0.9, 0.99)


class OnArm(Record):
    """What the trace takes of one arm's KV pool."""

    arm: str
    kv_bytes_per_token: int
    """In the layers that keep every token."""
    pool_tokens: int
    hit_ratio: float
    running_gib: float
    """Most that calls hold at once, at the nominal speed."""
    live_gib: float
    """Most that sessions under way would hold if nothing were forgotten."""


class Seen(Record):
    """Everything that is shown of a trace."""

    name: str
    seed: int
    overview: Overview
    load: LoadCurve
    arms: tuple[OnArm, ...]


def look(trace: Trace, *, profile: str | None, pools: Sequence[int]) -> Seen:
    """Sum up a trace, and compare it with the pools of a profile's arms (`NAME` or `NAME/ARM`)."""
    sized = [(arm, pool_of(arm).tokens) for arm in _arms(profile)]
    found = load(trace, pools=tuple(dict.fromkeys((*pools, *(tokens for _, tokens in sized)))))
    return Seen(
        name=trace.header.name,
        seed=trace.header.seed,
        overview=overview(trace),
        load=found,
        arms=tuple(_on_arm(arm, tokens, found) for arm, tokens in sized),
    )


def _arms(profile: str | None) -> tuple[ArmProfile, ...]:
    if profile is None:
        return ()
    if profile.endswith((".yaml", ".yml")):
        return read(profile).arms
    name, _, wanted = profile.partition("/")
    found = read(name)
    return (arm_of(found, wanted),) if wanted else found.arms


def _on_arm(arm: ArmProfile, pool_tokens: int, found: LoadCurve) -> OnArm:
    size = bytes_per_token(arm.model, arm.kv_dtype, arm.skip_layers)
    return OnArm(
        arm=arm.name,
        kv_bytes_per_token=size,
        pool_tokens=pool_tokens,
        hit_ratio=found.hits[pool_tokens],
        running_gib=max(found.running_tokens, default=0) * size / GIB,
        live_gib=max(found.live_tokens, default=0) * size / GIB,
    )


def likeness_rows(found: Overview, source: str) -> tuple[Likeness, ...]:
    """Compare a trace with the metrics that `prometheus=URL|FILE` names."""
    prompt, output = (
        MeanAndQuantiles(
            mean=field.mean,
            quantiles={share: field.quantiles[SHARES.index(share)] for share in _COMPARED},
        )
        for field in (found.fields["context"], found.fields["output"])
    )
    return tuple(
        likeness(
            Figures(prompt=prompt, output=output, cached=found.reuse.share), production(source)
        )
    )


def lines(seen: Seen) -> Iterator[str]:
    """Yield what is shown on a terminal, line by line."""
    found = seen.overview
    spawned = f" ({number(found.spawned)} of them spawned)" if found.spawned else ""
    yield (
        f"{seen.name} (seed {seen.seed}): {plural(found.sessions, 'session')}{spawned}, "
        f"{plural(found.turns, 'call')}"
    )
    if len(found.workloads) > 1:
        yield ", ".join(
            f"{name} {number(count)}" for name, count in sorted(found.workloads.items())
        )
    yield ""
    yield from table(("lengths in tokens", *LENGTHS), length_rows(found))
    yield ""
    calls, *rows = zip(
        ("context at call", "sessions", "q50", "q90"),
        *(map(number, (each.call, each.sessions, each.q50, each.q90)) for each in found.growth),
        strict=True,
    )
    yield from table(calls, rows)
    yield ""
    yield from _over_time(found, seen.load)
    yield ""
    by_event = [
        f"{event or 'plain calls'} {reuse.share:.1%}"
        for event, reuse in sorted(found.reuse_by_event.items())
    ]
    events = f" ({', '.join(by_event)})" if len(by_event) > 1 else ""
    yield f"reuse, nothing forgotten  {found.reuse.share:.1%}{events}"
    for tokens, share in seen.load.hits.items():
        yield f"reuse, {number(tokens)} tokens kept  {share:.1%}"
    if seen.arms:
        yield ""
        yield from table(ARMS, arm_rows(seen))


def length_rows(found: Overview) -> list[tuple[str, ...]]:
    """Return a row a field: its count, as many quantiles as `SHARES`, and its mean."""
    rows = []
    by_event = sorted(found.fields, key=lambda name: name.partition("@")[::-1])
    for name in by_event:
        summary = found.fields[name]
        unit = " (s)" if name.startswith("wait") else ""
        figures = (_figure(name, value) for value in (*summary.quantiles, summary.mean))
        rows.append((f"{name}{unit}", number(summary.count), *figures))
    return rows


def arm_rows(seen: Seen) -> list[tuple[str, ...]]:
    """Return a row an arm, under the words of `ARMS`."""
    return [
        (
            arm.arm,
            number(arm.kv_bytes_per_token),
            number(arm.pool_tokens),
            f"{arm.hit_ratio:.1%}",
            f"{arm.running_gib:,.1f} GiB",
            f"{arm.live_gib:,.1f} GiB",
        )
        for arm in seen.arms
    ]


def duration(seconds: float) -> str:
    """Print a span of time in the unit that suits it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"


def _figure(name: str, value: float) -> str:
    if name.startswith("thinking"):
        return f"{value:.2f}"
    if name.startswith("wait") and value < 10:
        return f"{value:,.2f}"
    return number(value)


def _over_time(found: Overview, load: LoadCurve) -> Iterator[str]:
    rate = (found.sessions - found.spawned) / found.last_start_s if found.last_start_s else 0.0
    spread = "" if found.arrivals_cv is None else f", CV of the gaps {found.arrivals_cv:.2f}"
    yield (
        f"starts           {_sparkline(found.arrivals)}  {rate:.3g} a second over "
        f"{duration(found.last_start_s)}{spread}"
    )
    if not load.calls:
        return
    over = duration(load.span_s * len(load.running))
    yield (
        f"calls at once    {_sparkline(load.running)}  at most {number(max(load.running))} over "
        f"{over}"
    )
    yield (
        f"their tokens     {_sparkline(load.running_tokens)}  at most "
        f"{number(max(load.running_tokens))}"
    )
    yield (
        f"session tokens   {_sparkline(load.live_tokens)}  at most {number(max(load.live_tokens))}"
    )
    partly = f"the first {plural(load.calls, 'call')}, " if load.calls < found.turns else ""
    yield (
        f"({partly}each at {PREFILL_TOKENS_PER_S:,.0f} prompt and {DECODE_TOKENS_PER_S:g} "
        "output tokens a second, no queue)"
    )


def _sparkline(values: Sequence[float]) -> str:
    return blocks(values, low=0, span=max(values, default=0))
