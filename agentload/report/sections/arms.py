"""Lay out every arm next to the reference, whose column has absolute values.

There is the table of the first screen, and one for each class.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from advisor.estimate import Estimate
from advisor.evidence import Calls
from advisor.legs.speed import INDIFFERENT
from advisor.steps import Again
from advisor.verdict import ArmVerdict, Change, Leg, LegState, Need
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Cell, Field, Table, Tone, muted, table
from agentload.report.sections.gpus import at_peak, count, saving
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
    "The mix decides. Verdicts on classes are secondary: their intervals are not adjusted "
    "for how many classes there are."
)
DEARER: Final = (
    "To settle a class by itself takes more than to settle the mix, which does not wait for it."
)
ABSENT: Final = muted(say.ABSENT)
_EMPTY: Final = Cell(text="")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    name: str
    cells: tuple[Cell, ...]
    """One for each arm, the reference first."""
    noise: float | None = None
    """By how much two identical servers may differ."""


def _row(name: str, texts: Iterable[Cell | str | None]) -> _Row:
    """Lay out a row of which every arm has a field; None is absent."""
    return _Row(name=name, cells=tuple(map(_cell, texts)))


def _cell(text: Cell | str | None) -> Cell:
    if isinstance(text, Cell):
        return text
    return ABSENT if text is None else Cell(text=text)


def _shown(
    estimates: Iterable[Estimate | None], show: Callable[[Estimate], str]
) -> Iterator[str | None]:
    return (None if each is None else show(each) for each in estimates)


def server(view: View) -> Table:
    """Compare the arms as servers, which decides: one flag serves all classes.

    What was not measured has no row.
    """
    rows = (
        *_compared(view, None),
        *_pool(view),
        *_answers(view),
        *_gpus(view),
        *_verdicts(view, None),
    )
    note, head = [_medians(view), _margin(view)], ""
    if view.others:
        saved = saving(view, view.focus)
        note.append(f"{saved.because}." if saved.tone != "muted" else "")
        played = say.plural(view.played, "block pair") if view.played else ""
        head = say.join((f"compared with {view.against}", played))
    return _table(view, "This mix", rows, note, head=head)


def _medians(view: View) -> str:
    """Say that the latencies of the reference are medians, where there are some."""
    is_typical = view.decision.changes and view.calls(view.reference)
    return f"{view.against} latencies are medians." if is_typical else ""


def _margin(view: View) -> str:
    """Say once how large a change counts, and what it takes to call two arms equal."""
    if not any(change.metric == "turn_ms" for change in view.decision.changes):
        return ""
    least = say.percent(view.policy.min_change)
    within = say.percent(INDIFFERENT * view.policy.min_change)
    return (
        f"A change counts from {least} (min_change). “No difference” needs the whole "
        f"interval within ±{within}."
    )


def classes(view: View) -> Table:
    """Compare the arms class by class, the one with most of the server's time first."""
    shares = {each.name: each.gpu_time_share for each in view.evidence.workloads}
    rows: list[_Row] = []
    for name in view.workloads:
        share = "" if shares[name] is None else f" {say.percent(shares[name])}"
        own = (*_compared(view, name), *_verdicts(view, name))
        rows += [replace(row, name=f"{name}{share}: {row.name}") for row in own]
    note = []
    if len(view.workloads) > 1:
        note = [SECONDARY, DEARER if _is_dearer(view) else ""]
    return _table(view, "By workload class, with its share of server time", rows, note)


def _is_dearer(view: View) -> bool:
    """Tell whether some class takes longer to settle than the mix."""
    for arm in view.others:
        of_mix = _minutes(view.verdict(arm, None))
        of_classes = [_minutes(view.verdict(arm, name)) for name in view.workloads]
        if of_mix > 0 and max(of_classes, default=0.0) > of_mix:
            return True
    return False


def _minutes(verdict: ArmVerdict | None) -> float:
    if verdict is None:
        return 0.0
    return sum(each.minutes or 0.0 for each in _wanted(verdict).values())


def _wanted(verdict: ArmVerdict) -> dict[str, Need]:
    """Return what is missing to settle a verdict, the first of each kind whose cost is known."""
    wanted: dict[str, Need] = {}
    if verdict.verdict != "test further":
        return wanted
    for each in verdict.needs:
        if labels.cost(each) and not isinstance(each.step, Again):
            wanted.setdefault(labels.noun(each), each)
    return wanted


def _table(
    view: View, title: str, rows: Sequence[_Row], note: Iterable[str], *, head: str = ""
) -> Table:
    columns = [head, *map(labels.arm, view.arms)]
    laid: list[list[Field]] = [[row.name, *row.cells] for row in rows]
    if any(row.noise is not None for row in rows):
        columns.append("noise")
        for fields, row in zip(laid, rows, strict=True):
            fields.append(_noise(row.noise))
        note = (*note, "Noise: what two identical servers may differ by (A/A).")
    return table(title, columns, laid, _sentences(note))


def _sentences(parts: Iterable[str]) -> str:
    return say.join(parts, " ")


def _noise(floor: float | None) -> Cell:
    return muted("" if floor is None else f"±{say.number(100 * floor, 1)}%")


def _compared(view: View, workload: str | None) -> Iterator[_Row]:
    """Yield what a class, or the whole mix, has of latencies, limits and agents."""
    for metric, words in METRICS:
        changes = [view.change(metric, arm, workload) for arm in view.others]
        floors = [each.floor for each in changes if each is not None and each.floor is not None]
        typical = _typical(view, metric, workload)
        if any(changes):
            row = _row(words, (typical, *_changes(view, changes, workload)))
            yield replace(row, noise=max(floors, default=None))
        elif metric == "turn_ms" and workload is not None:
            played = (view.evidence.calls(workload, arm) for arm in view.others)
            yield _row(words, (typical, *map(_uncompared, played)))
    if workload is None:
        yield from _elsewhere(view)
    yield from _first_token(view, workload)
    yield from _agents(view, workload)


def _elsewhere(view: View) -> Iterator[_Row]:
    """Yield how turn latencies compare under loads that no pair was played under.

    They are simulated, by the twins of the arms.
    """
    by_load: dict[tuple[bool, int], dict[str, str]] = {}
    for each in view.decision.twin_changes:
        by_load.setdefault((each.is_own, each.agents), {})[each.arm] = say.change(each.relative)
    for (is_own, _), changes in by_load.items():
        load = "at your peak" if is_own else "for hours"
        texts = (changes.get(arm, say.ABSENT) for arm in view.others)
        yield _row(f"turn latency {load} (twins)", (_EMPTY, *texts))


def _typical(view: View, metric: Metric, workload: str | None) -> Cell:
    """Print the median of the reference's turns of a class or of the mix.

    It is defined as in the figures: a turn that failed took infinitely long.
    """
    played = view.calls(view.reference)
    if workload is not None:
        own = view.evidence.calls(workload, view.reference)
        played = [] if own is None else [own]
    values = [np.where(each.ok, getattr(each, metric), np.inf) for each in played]
    seen = np.concatenate(values) if values else np.zeros(0)
    seen = seen[~np.isnan(seen)]
    median = float(np.quantile(seen, 0.5, method="inverted_cdf")) if seen.size else np.inf
    if not np.isfinite(median):
        return ABSENT
    text = say.duration(median)
    if metric == "tpot_ms" and median > 0:
        text += f" ({say.significant(1_000 / median)} tokens/s)"
    return Cell(text=text)


def _uncompared(calls: Calls | None) -> Cell:
    """Say why a class was not compared: its calls failed, or too few ended well."""
    if calls is None:
        return ABSENT
    ended = int(calls.ok.sum())
    return muted(f"{say.plural(ended, 'call')}: too few" if ended else "every call failed")


def _changes(view: View, changes: Sequence[Change | None], workload: str | None) -> Iterator[Cell]:
    for arm, each, verdict in zip(view.others, changes, view.verdicts(workload), strict=True):
        if each is None:
            yield ABSENT
            continue
        text = say.change(each.relative)
        if verdict is not None and verdict.pays.state == "untested":
            yield muted(f"{text}, not valid")
        elif each.floor is None or abs(each.relative.value) > each.floor:
            is_chosen = workload is None and arm == view.decision.choice.arm
            yield Cell(text=text, tone="strong" if is_chosen else "plain")
        else:
            surprises = each.relative.is_above(0.0) or each.relative.is_below(0.0)
            yield muted(f"{text}, within noise" if surprises else text)


def _first_token(view: View, workload: str | None) -> Iterator[_Row]:
    """Yield the time to first token of a class that has a limit for it.

    With too few sessions for a p95, the median.
    """
    slo = view.policy.slo(workload) if workload is not None else None
    if slo is None or slo.ttft_ms is None:
        return
    late: Tone = "bad"
    for part in ("p95", "p50"):
        cells = []
        for arm in view.arms:
            figure = view.figure(f"ttft_ms.{part}", arm, workload)
            if figure is None:
                cells.append(ABSENT)
                continue
            is_late = figure.estimate.is_above(slo.ttft_ms)
            text = say.duration(figure.estimate.value)
            cells.append(Cell(text=text, tone=late if is_late else "plain"))
        if any(cell is not ABSENT for cell in cells):
            yield _row(f"TTFT {part} (limit {say.duration(slo.ttft_ms)})", cells)
            return
        late = "plain"


def _agents(view: View, workload: str | None) -> Iterator[_Row]:
    found = [view.capacity(arm, workload) for arm in view.arms]
    rates = [None if each is None else each.agents_per_gpu for each in found]
    if any(rates):
        yield _row("agents per GPU within the SLO", _shown(rates, say.agents))


def _pool(view: View) -> Iterator[_Row]:
    pools = [view.evidence.arm(arm).pool_tokens for arm in view.arms]
    if any(pools):
        ours, *others = pools
        times = (f"{say.number(each / ours, 2)}×" if each and ours else None for each in others)
        yield _row("KV pool", (None if ours is None else f"{say.tokens(ours)} tokens", *times))
    seen = [view.evidence.telemetry(None, arm) for arm in view.arms]
    hits = [None if each is None else each.hit_rate for each in seen]
    if any(each is not None for each in hits):
        yield _row("cache hit rate", map(_hits, hits))


def _hits(rate: float | None) -> Cell | str:
    text = say.percent(rate)
    return text if rate is None or rate <= 1 else muted(f"{text}, not valid")


def _asked(view: View) -> tuple[int, float]:
    """Return how many items both arms were asked, and how many the reference got right.

    A graded one counts in part.
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
    legs = (None if each is None else each.safe for each in view.verdicts(None))
    share = f"{say.number(100 * right / items, 1)}%"
    yield _row(f"accuracy, {say.plural(items, 'question')}", (share, *map(_accuracy, legs)))
    lost = [_worst(view, arm) for arm in view.others]
    if any(lost):
        yield _row("largest drop (lengths that dropped)", (_EMPTY, *lost))


def _accuracy(leg: Leg | None) -> Cell | None:
    if leg is None or leg.estimate is None:
        return None
    sign, tone = _SIGNS.get(leg.state, _UNSIGNED)
    return Cell(text=f"{labels.leg(leg)}{sign}", tone=tone)


def _worst(view: View, arm: str) -> str | None:
    buckets = [bucket for bucket in view.decision.accuracy if bucket.arm == arm]
    if not buckets:
        return None
    worst = min(buckets, key=lambda bucket: bucket.difference.value)
    down = sum(bucket.difference.value < 0 for bucket in buckets)
    drop, length = say.signed(100 * worst.difference.value, 1), say.tokens(worst.context_tokens)
    return f"{drop} pp at {length} ({down} of {len(buckets)})"


def _gpus(view: View) -> Iterator[_Row]:
    """Yield the GPUs of every arm at the peak, and those that the others save."""
    found = [view.capacity(arm) for arm in view.arms]
    needed = [None if each is None else each.gpus_at_peak for each in found]
    if any(needed):
        yield _row(f"GPUs{at_peak(view)}", _shown(needed, count))
    savings = [saving(view, arm) for arm in view.others]
    if any(each.tone != "muted" for each in savings):
        cells = (Cell(text=each.word, tone=each.tone) for each in savings)
        yield _row(f"GPUs saved{at_peak(view)}", (_EMPTY, *cells))


def _verdicts(view: View, workload: str | None) -> Iterator[_Row]:
    found = view.verdicts(workload)
    if any(found) and not view.compares_runs:
        yield _row("verdict", (_EMPTY, *map(_verdict, found)))


def _verdict(verdict: ArmVerdict | None) -> Cell | None:
    if verdict is None:
        return None
    text = f"{words(verdict)}{need(verdict)}"
    return Cell(text=text, tone=labels.VERDICT_TONES[verdict.verdict])


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
    """Say what the missing evidence takes: `: +260 calls, 7 min`.

    What has to be played again is named although its cost is not known.
    """
    wanted = _wanted(verdict)
    costs = [f"+{labels.cost(each)}" for each in wanted.values()]
    is_again = any(isinstance(each.step, Again) for each in verdict.needs)
    if is_again and verdict.verdict == "test further":
        costs.insert(0, "a run without the failed check")
    if is_whole or len(costs) < 2:
        return f": {' and '.join(costs)}" if costs else ""
    # A cell has room for counts, and for what all of them take.
    counts = (cost.partition(", ")[0].replace("paired ", "") for cost in costs)
    spent = labels.totals(wanted.values()) if len(wanted) == len(costs) else ()
    return f": {', '.join((' and '.join(counts), *spent))}"
