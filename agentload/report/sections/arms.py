"""Every arm beside the reference, which has its own column of absolute
values: the table of the first screen, and one for each class.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from advisor.assess.capacity import saved as gpus_saved
from advisor.estimate import Estimate
from advisor.evidence import Calls
from advisor.legs.speed import INDIFFERENT
from advisor.steps import Again
from advisor.verdict import ArmVerdict, Capacity, Change, LegState, Need
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Answer, Cell, Table, Tone, table
from agentload.report.sections.view import View

Metric = Literal["turn_ms", "ttft_ms", "tpot_ms"]
METRICS: Final[tuple[tuple[Metric, str], ...]] = (
    ("turn_ms", "turn latency"),
    ("ttft_ms", "time to first token"),
    ("tpot_ms", "time per output token"),
)
_SIGNS: Final[dict[LegState, tuple[str, Tone]]] = {
    "yes": (" ✓", "good"),
    "equal": (" ✓", "good"),
    "no": (" ✗", "bad"),
}
_UNSIGNED: Final[tuple[str, Tone]] = ("", "plain")
SECONDARY: Final = (
    "The mix decides. Verdicts on classes are secondary: their intervals are not adjusted for "
    "how many classes there are."
)
DEARER: Final = (
    "To settle a class by itself takes more than to settle the mix, which does not wait for it."
)
ABSENT: Final = Cell(text=say.ABSENT, tone="muted")
_EMPTY: Final = Cell(text="")
HOURS_A_MONTH: Final = 730  # a twelfth of a year


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    name: str
    cells: tuple[Cell, ...]
    """One for each arm, the reference first."""
    noise: float | None = None
    """By how much two identical servers may differ."""


def server(view: View) -> Table:
    """Compare the arms as servers: one flag serves all classes, so this decides.

    What was not measured has no row.
    """
    rows = (
        *_compared(view, None),
        *_pool(view),
        *_answers(view),
        *_gpus(view),
        *_verdicts(view, None),
    )
    gpus = saved(view, view.focus)
    told = (
        _medians(view),
        _margin(view),
        f"{gpus.because}." if gpus.tone != "muted" and view.evidence.challengers else "",
    )
    played = f", {say.plural(view.played, 'block pair')}" if view.played else ""
    head = (
        f"compared with {labels.arm(view.evidence.reference)}{played}"
        if view.evidence.challengers
        else ""
    )
    return _table(view, "This mix", rows, " ".join(filter(None, told)), head=head)


def _medians(view: View) -> str:
    """Say what the latencies of the reference are."""
    is_typical = view.decision.changes and view.calls(view.evidence.reference)
    return f"{labels.arm(view.evidence.reference)} latencies are medians." if is_typical else ""


def _margin(view: View) -> str:
    """Say once from where on a change counts, and what it takes to call two arms equal."""
    if not any(change.metric == "turn_ms" for change in view.decision.changes):
        return ""
    least, within = (
        say.percent(view.policy.min_change),
        say.percent(INDIFFERENT * view.policy.min_change),
    )
    return (
        f"A change counts from {least} (min_change). “No difference” needs the whole interval "
        f"within ±{within}."
    )


def classes(view: View) -> Table:
    """Compare the arms class by class, the one with most of the server's time first."""
    shares = {each.name: each.gpu_time_share for each in view.evidence.workloads}
    rows: list[_Row] = []
    for name in view.workloads:
        found = (*_compared(view, name), *_verdicts(view, name))
        share = "" if shares[name] is None else f" {say.percent(shares[name])}"
        rows += [
            _Row(name=f"{name}{share}: {row.name}", cells=row.cells, noise=row.noise)
            for row in found
        ]
    told = (SECONDARY, DEARER if _is_dearer(view) else "") if len(view.workloads) > 1 else ()
    return _table(
        view, "By workload class, with its share of server time", rows, " ".join(filter(None, told))
    )


def _is_dearer(view: View) -> bool:
    """Tell whether some class takes longer to settle than the mix."""
    by_arm = [
        (view.verdict(arm, None), [view.verdict(arm, name) for name in view.workloads])
        for arm in view.arms[1:]
    ]
    return any(
        _minutes(each) > _minutes(whole) > 0 for whole, classes in by_arm for each in classes
    )


def _minutes(verdict: ArmVerdict | None) -> float:
    return (
        0.0 if verdict is None else sum(each.minutes or 0.0 for each in _wanted(verdict).values())
    )


def _wanted(verdict: ArmVerdict) -> dict[str, Need]:
    """Return what is missing to settle a verdict, the first of each kind whose cost is known."""
    wanted: dict[str, Need] = {}
    for each in verdict.needs:
        if (
            verdict.verdict == "test further"
            and not isinstance(each.step, Again)
            and labels.cost(each)
        ):
            wanted.setdefault(labels.noun(each), each)
    return wanted


def _table(
    view: View, title: str, rows: Sequence[_Row], note: str = "", *, head: str = ""
) -> Table:
    noisy = any(row.noise is not None for row in rows)
    columns = (head, *map(labels.arm, view.arms), *(("noise",) if noisy else ()))
    noises = ("" if row.noise is None else f"±{say.number(100 * row.noise, 1)}%" for row in rows)
    laid = (
        (row.name, *row.cells, *((Cell(text=noise, tone="muted"),) if noisy else ()))
        for row, noise in zip(rows, noises, strict=True)
    )
    told = "Noise: what two identical servers may differ by (A/A)." if noisy else ""
    return table(title, columns, laid, " ".join(part for part in (note, told) if part))


def _compared(view: View, workload: str | None) -> Iterator[_Row]:
    """Yield what a class, or the whole mix, has of latencies, limits and agents."""
    for metric, words in METRICS:
        changes = [view.change(metric, arm, workload) for arm in view.arms[1:]]
        if any(changes):
            floors = [each.floor for each in changes if each is not None and each.floor is not None]
            cells = (_typical(view, metric, workload), *_changes(view, changes, workload))
            yield _Row(name=words, cells=cells, noise=max(floors, default=None))
        elif metric == "turn_ms" and workload is not None:
            played = (view.evidence.calls(workload, arm) for arm in view.arms[1:])
            cells = (
                _typical(view, metric, workload),
                *(ABSENT if each is None else _uncompared(each) for each in played),
            )
            yield _Row(name=words, cells=cells)
    if workload is None:
        yield from _elsewhere(view)
    yield from _first_token(view, workload)
    yield from _agents(view, workload)


def _elsewhere(view: View) -> Iterator[_Row]:
    """Yield how turn latencies compare under loads that no
    pair was played under: simulated, by the twins of the arms.
    """
    found = view.decision.twin_changes
    for is_own, agents in dict.fromkeys((each.is_own, each.agents) for each in found):
        of = {
            each.arm: each.relative
            for each in found
            if (each.is_own, each.agents) == (is_own, agents)
        }
        cells = (Cell(text=say.change(of.get(arm))) for arm in view.arms[1:])
        yield _Row(
            name=f"turn latency {'at your peak' if is_own else 'for hours'} (twins)",
            cells=(_EMPTY, *cells),
        )


def _typical(view: View, metric: Metric, workload: str | None) -> Cell:
    """Print the median of the reference's turns of a class or of the
    mix, by the definition of the figures; one that died took for ever.
    """
    reference = view.evidence.reference
    found = (
        view.calls(reference) if workload is None else [view.evidence.calls(workload, reference)]
    )
    values = [
        np.where(each.ok, getattr(each, metric), np.inf) for each in found if each is not None
    ]
    seen = np.concatenate(values) if values else np.zeros(0)
    if not (seen := seen[~np.isnan(seen)]).size or not np.isfinite(
        median := float(np.quantile(seen, 0.5, method="inverted_cdf"))
    ):
        return ABSENT
    rate = (
        f" ({say.significant(1_000 / median)} tokens/s)"
        if metric == "tpot_ms" and median > 0
        else ""
    )
    return Cell(text=f"{say.duration(median)}{rate}")


def _uncompared(calls: Calls) -> Cell:
    """Say why a class was not compared: its calls failed, or those that did not are too few."""
    ended = int(calls.ok.sum())
    return Cell(
        text=f"{say.plural(ended, 'call')}: too few" if ended else "every call failed", tone="muted"
    )


def _changes(view: View, changes: Sequence[Change | None], workload: str | None) -> Iterator[Cell]:
    relative = [None if each is None else each.relative for each in changes]
    for arm, each, estimate in zip(view.arms[1:], changes, relative, strict=True):
        text, verdict = say.change(estimate), view.verdict(arm, workload)
        if each is not None and verdict is not None and verdict.pays.state == "untested":
            yield Cell(text=f"{text}, not valid", tone="muted")
        elif each is None or each.floor is None or abs(each.relative.value) > each.floor:
            chosen = workload is None and arm == view.decision.choice.arm
            yield Cell(text=text, tone="strong" if chosen else "muted" if each is None else "plain")
        else:
            surprises = each.relative.is_above(0.0) or each.relative.is_below(0.0)
            yield Cell(text=f"{text}, within noise" if surprises else text, tone="muted")


def _first_token(view: View, workload: str | None) -> Iterator[_Row]:
    """Yield how long the first token of a class takes where a limit
    for it was agreed; with too few sessions for a p95, the median.
    """
    slo = view.policy.slo(workload) if workload is not None else None
    if slo is None or slo.ttft_ms is None:
        return
    for part in ("p95", "p50"):
        found = [view.figure(f"ttft_ms.{part}", arm, workload) for arm in view.arms]
        if any(found):
            late: Tone = "bad" if part == "p95" else "plain"
            cells = (
                ABSENT
                if each is None
                else Cell(
                    text=say.duration(each.estimate.value),
                    tone=late if each.estimate.is_above(slo.ttft_ms) else "plain",
                )
                for each in found
            )
            yield _Row(name=f"TTFT {part} (limit {say.duration(slo.ttft_ms)})", cells=tuple(cells))
            return


def _agents(view: View, workload: str | None) -> Iterator[_Row]:
    found = [
        None if each is None else each.agents_per_gpu
        for each in (view.capacity(arm, workload) for arm in view.arms)
    ]
    if any(found):
        cells = tuple(ABSENT if each is None else Cell(text=say.agents(each)) for each in found)
        yield _Row(name="agents per GPU within the SLO", cells=cells)


def _pool(view: View) -> Iterator[_Row]:
    pools = [view.evidence.arm(arm).pool_tokens for arm in view.arms]
    if any(pools):
        cells = [
            ABSENT if each is None else Cell(text=f"{say.tokens(each)} tokens")
            for each in pools[:1]
        ]
        cells += [
            Cell(text=f"{say.number(each / pools[0], 2)}×") if each and pools[0] else ABSENT
            for each in pools[1:]
        ]
        yield _Row(name="KV pool", cells=tuple(cells))
    hits = [
        None if (figures := view.evidence.telemetry(None, arm)) is None else figures.hit_rate
        for arm in view.arms
    ]
    if any(each is not None for each in hits):
        yield _Row(name="cache hit rate", cells=tuple(_hits(each) for each in hits))


def _hits(rate: float | None) -> Cell:
    return (
        Cell(text=say.percent(rate))
        if rate is None or rate <= 1
        else Cell(text=f"{say.percent(rate)}, not valid", tone="muted")
    )


def _asked(view: View) -> tuple[int, float]:
    """Return how many items both arms were asked, and how many
    of them the reference got right; a graded one counts in part.
    """
    buckets = [bucket for bucket in view.evidence.accuracy if bucket.arm == view.focus]
    items = sum(
        bucket.items if bucket.reference_scores is None else len(bucket.reference_scores)
        for bucket in buckets
    )
    right = sum(
        bucket.both + bucket.reference_only
        if bucket.reference_scores is None
        else float(bucket.reference_scores.sum())
        for bucket in buckets
    )
    return items, right


def _answers(view: View) -> Iterator[_Row]:
    items, right = _asked(view)
    if not items:
        return
    safe = [
        None if (verdict := view.verdict(arm, None)) is None else verdict.safe
        for arm in view.arms[1:]
    ]
    signs = [_SIGNS.get(leg.state if leg is not None else "untested", _UNSIGNED) for leg in safe]
    cells = [
        ABSENT
        if leg is None or leg.estimate is None
        else Cell(text=f"{labels.leg(leg)}{sign}", tone=tone)
        for leg, (sign, tone) in zip(safe, signs, strict=True)
    ]
    first = Cell(text=f"{say.number(100 * right / items, 1)}%")
    yield _Row(name=f"accuracy, {say.plural(items, 'question')}", cells=(first, *cells))
    lost = [_worst(view, arm) for arm in view.arms[1:]]
    if any(cell != ABSENT for cell in lost):
        yield _Row(name="largest drop (lengths that dropped)", cells=(_EMPTY, *lost))


def _worst(view: View, arm: str) -> Cell:
    buckets = [bucket for bucket in view.decision.accuracy if bucket.arm == arm]
    if not buckets:
        return ABSENT
    worst = min(buckets, key=lambda bucket: bucket.difference.value)
    down = sum(bucket.difference.value < 0 for bucket in buckets)
    return Cell(
        text=f"{say.signed(100 * worst.difference.value, 1)} pp at "
        f"{say.tokens(worst.context_tokens)} ({down} of {len(buckets)})"
    )


def _gpus(view: View) -> Iterator[_Row]:
    """Yield the GPUs of every arm at the peak, and those that the others save."""
    needed = [None if each is None else each.gpus_at_peak for each in map(view.capacity, view.arms)]
    if any(needed):
        cells = tuple(ABSENT if each is None else Cell(text=_whole(each)) for each in needed)
        yield _Row(name=f"GPUs{_at_peak(view)}", cells=cells)
    found = [saved(view, arm) for arm in view.arms[1:]]
    if any(each.tone != "muted" for each in found):
        cells = tuple(Cell(text=each.word, tone=each.tone) for each in found)
        yield _Row(name=f"GPUs saved{_at_peak(view)}", cells=(_EMPTY, *cells))


def _at_peak(view: View) -> str:
    peak = view.evidence.deployment.peak_agents
    return f" at your peak of {say.plural(peak, 'agent')}" if peak else ""


def _whole(gpus: Estimate) -> str:
    """Print a number of GPUs; one that is known for certain has no interval."""
    is_exact = (gpus.low, gpus.high) == (gpus.value, gpus.value)
    return say.number(gpus.value) if is_exact else say.spread(gpus, say.whole)


def saved(view: View, arm: str) -> Answer:
    """Say how many GPUs an arm saves, and what that is worth."""
    question = "GPUs saved"
    reference, mine = view.capacity(view.evidence.reference), view.capacity(arm)
    fewer = gpus_saved(reference, mine)
    if fewer is None or reference is None or mine is None:
        known = all(
            each is not None and each.agents_per_gpu is not None for each in (mine, reference)
        )
        reasons = [
            each.reason
            for each in (mine, reference)
            if each is not None and each.gpus_at_peak is None
        ]
        if known and view.evidence.deployment.peak_agents is None:
            reasons = ["set load.peak_agents in the policy, your agents at peak"]
        because = reasons[0] if reasons else "capacity was not measured"
        return Answer(
            question=question, word="not known", tone="muted", because=view.typeset(because)
        )
    tone: Tone = "good" if fewer.is_above(0.0) else "bad" if fewer.is_below(0.0) else "plain"
    because = f"{_due(view, reference, mine)}{_money(view, arm, fewer)}"
    return Answer(question=question, word=_whole(fewer), tone=tone, because=because)


def _money(view: View, arm: str, fewer: Estimate) -> str:
    """Say what the GPUs cost a month at both ends of their interval, where a price is known.

    What may be no saving is worth nothing yet, and neither is one that nobody decided on.
    """
    price, verdict = view.evidence.deployment.gpu.usd_per_hour, view.verdict(arm, None)
    is_open = verdict is None or verdict.verdict == "test further"
    if price is None or is_open or not (fewer.is_above(0.0) or fewer.is_below(0.0)):
        return ""
    month = price * HOURS_A_MONTH
    ends = sorted(abs(end) * month for end in (fewer.low, fewer.high) if end is not None)
    usd = " to ".join(dict.fromkeys(say.number(end) for end in ends))
    least = "at least " if len(ends) < 2 else ""
    side = "less" if fewer.value > 0 else "more"
    return f"; {least}{usd} USD a month {side} at {price:g} USD a GPU-hour"


def _due(view: View, reference: Capacity, mine: Capacity) -> str:
    need = (
        f"{labels.arm(mine.arm)} needs "
        f"{say.plural(mine.replicas_at_peak or 0, 'replica')}{_at_peak(view)}"
    )
    need += f", {labels.arm(reference.arm)} {reference.replicas_at_peak}"
    if reference.next_replica_at_agents is None or mine.next_replica_at_agents is None:
        return need
    return (
        f"{need}; the next one is due at {mine.next_replica_at_agents} agents instead of "
        f"{reference.next_replica_at_agents}"
    )


def _verdicts(view: View, workload: str | None) -> Iterator[_Row]:
    found = [view.verdict(arm, workload) for arm in view.arms[1:]]
    if any(found) and view.facts.made.compared_with is None:
        yield _Row(
            name="verdict",
            cells=(
                _EMPTY,
                *(
                    ABSENT
                    if each is None
                    else Cell(
                        text=f"{words(each)}{need(each)}", tone=labels.VERDICT_TONES[each.verdict]
                    )
                    for each in found
                ),
            ),
        )


def words(verdict: ArmVerdict) -> str:
    """Say a verdict in a few words, and up to which context it holds."""
    to = labels.up_to(verdict.holds_to)
    match verdict.verdict:
        case "use":
            return f"use{to}, canary first" if verdict.canary else f"use{to}"
        case "calibrate":
            return "calibrate, then test again"
        case "avoid" | "no difference" | "test further":
            return f"{verdict.verdict}{to}"


def need(verdict: ArmVerdict, *, is_whole: bool = False) -> str:
    """Say what the missing evidence takes: `: +260 calls, 7 min`;
    what has to be played again is named though nobody knows its cost.
    """
    wanted = _wanted(verdict)
    first = {kind: f"+{labels.cost(each)}" for kind, each in wanted.items()}
    if verdict.verdict == "test further" and any(
        isinstance(each.step, Again) for each in verdict.needs
    ):
        first = {"again": "a run without the failed check"} | first
    if is_whole or len(first) < 2:
        return f": {' and '.join(first.values())}" if first else ""
    # A cell has room for counts, and for what all of them take.
    counts = (told.partition(", ")[0].replace("paired ", "") for told in first.values())
    return (
        ": "
        f"{', '.join((' and '.join(counts), *(labels.spent(wanted.values()) if len(wanted) == len(first) else ())))}"
    )
