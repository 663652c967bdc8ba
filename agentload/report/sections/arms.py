"""Every arm beside the reference, which has its own column of absolute values: the table of the first screen, and one for each class."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

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
_SIGNS: Final[dict[LegState, tuple[str, Tone]]] = {"yes": (" ✓", "good"), "equal": (" ✓", "good"), "no": (" ✗", "bad")}
_UNSIGNED: Final[tuple[str, Tone]] = ("", "plain")
SECONDARY: Final = "The mix decides. Verdicts on classes are secondary: their intervals are not adjusted for how many classes there are."
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
    """Compare the arms as servers: one flag serves all classes, so this decides. What was not measured has no row."""
    rows = (*_compared(view, None), *_pool(view), *_answers(view), *_gpus(view), *_verdicts(view, None))
    gpus = saved(view, view.focus)
    told = (_medians(view), _margin(view), f"{gpus.because}." if gpus.tone != "muted" and view.evidence.challengers else "")
    played = f", {say.plural(view.played, 'block pair')}" if view.played else ""
    head = f"compared with {labels.arm(view.evidence.reference)}{played}" if view.evidence.challengers else ""
    return _table(view, "This mix", rows, " ".join(filter(None, told)), head=head)


def _medians(view: View) -> str:
    """Say what the latencies of the reference are."""
    is_typical = view.decision.changes and view.calls(view.evidence.reference)
    return f"{labels.arm(view.evidence.reference)} latencies are medians." if is_typical else ""


def _margin(view: View) -> str:
    """Say once from where on a change counts, and what it takes to call two arms equal."""
    if not any(change.metric == "turn_ms" for change in view.decision.changes):
        return ""
    least, within = say.percent(view.policy.min_change), say.percent(INDIFFERENT * view.policy.min_change)
    return f"A change counts from {least} (min_change). “No difference” needs the whole interval within ±{within}."


def classes(view: View) -> Table:
    """Compare the arms class by class, the one with most of the server's time first."""
    shares = {each.name: each.gpu_time_share for each in view.evidence.workloads}
    rows: list[_Row] = []
    for name in view.workloads:
        found = (*_compared(view, name), *_verdicts(view, name))
        share = "" if shares[name] is None else f" {say.percent(shares[name])}"
        rows += [_Row(name=f"{name}{share}: {row.name}", cells=row.cells, noise=row.noise) for row in found]
    return _table(view, "By workload class, with its share of server time", rows, SECONDARY if len(view.workloads) > 1 else "")


def _table(view: View, title: str, rows: Sequence[_Row], note: str = "", *, head: str = "") -> Table:
    noisy = any(row.noise is not None for row in rows)
    columns = (head, *map(labels.arm, view.arms), *(("noise",) if noisy else ()))
    noises = ("" if row.noise is None else f"±{say.number(100 * row.noise, 1)}%" for row in rows)
    laid = ((row.name, *row.cells, *((Cell(text=noise, tone="muted"),) if noisy else ())) for row, noise in zip(rows, noises, strict=True))
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
            cells = (_typical(view, metric, workload), *(ABSENT if each is None else _uncompared(each) for each in played))
            yield _Row(name=words, cells=cells)
    yield from _first_token(view, workload)
    yield from _agents(view, workload)


def _typical(view: View, metric: Metric, workload: str | None) -> Cell:
    """Print the median of the reference's turns of a class or of the mix, by the definition of the figures; one that died took for ever."""
    reference = view.evidence.reference
    found = view.calls(reference) if workload is None else [view.evidence.calls(workload, reference)]
    values = [np.where(each.ok, getattr(each, metric), np.inf) for each in found if each is not None]
    seen = np.concatenate(values) if values else np.zeros(0)
    if not (seen := seen[~np.isnan(seen)]).size or not np.isfinite(median := float(np.quantile(seen, 0.5, method="inverted_cdf"))):
        return ABSENT
    rate = f" ({say.significant(1_000 / median)} tokens/s)" if metric == "tpot_ms" and median > 0 else ""
    return Cell(text=f"{say.duration(median)}{rate}")


def _uncompared(calls: Calls) -> Cell:
    """Say why a class was not compared: its calls failed, or those that did not are too few."""
    ended = int(calls.ok.sum())
    return Cell(text=f"{say.plural(ended, 'call')}: too few" if ended else "every call failed", tone="muted")


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
    """Yield how long the first token of a class takes where a limit for it was agreed; with too few sessions for a p95, the median."""
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
                else Cell(text=say.duration(each.estimate.value), tone=late if each.estimate.is_above(slo.ttft_ms) else "plain")
                for each in found
            )
            yield _Row(name=f"TTFT {part} (limit {say.duration(slo.ttft_ms)})", cells=tuple(cells))
            return


def _agents(view: View, workload: str | None) -> Iterator[_Row]:
    found = [None if each is None else each.agents_per_gpu for each in (view.capacity(arm, workload) for arm in view.arms)]
    if any(found):
        cells = tuple(ABSENT if each is None else Cell(text=say.agents(each)) for each in found)
        yield _Row(name="agents per GPU within the SLO", cells=cells)


def _pool(view: View) -> Iterator[_Row]:
    pools = [view.evidence.arm(arm).pool_tokens for arm in view.arms]
    if any(pools):
        cells = [ABSENT if each is None else Cell(text=f"{say.tokens(each)} tokens") for each in pools[:1]]
        cells += [Cell(text=f"{say.number(each / pools[0], 2)}×") if each and pools[0] else ABSENT for each in pools[1:]]
        yield _Row(name="KV pool", cells=tuple(cells))
    hits = [None if (figures := view.evidence.telemetry(None, arm)) is None else figures.hit_rate for arm in view.arms]
    if any(each is not None for each in hits):
        yield _Row(name="cache hit rate", cells=tuple(_hits(each) for each in hits))


def _hits(rate: float | None) -> Cell:
    return Cell(text=say.percent(rate)) if rate is None or rate <= 1 else Cell(text=f"{say.percent(rate)}, not valid", tone="muted")


def _asked(view: View) -> tuple[int, float]:
    """Return how many items both arms were asked, and how many of them the reference got right; a graded one counts in part."""
    buckets = [bucket for bucket in view.evidence.accuracy if bucket.arm == view.focus]
    items = sum(bucket.items if bucket.reference_scores is None else len(bucket.reference_scores) for bucket in buckets)
    right = sum(
        bucket.both + bucket.reference_only if bucket.reference_scores is None else float(bucket.reference_scores.sum())
        for bucket in buckets
    )
    return items, right


def _answers(view: View) -> Iterator[_Row]:
    items, right = _asked(view)
    if not items:
        return
    safe = [None if (verdict := view.verdict(arm, None)) is None else verdict.safe for arm in view.arms[1:]]
    signs = [_SIGNS.get(leg.state if leg is not None else "untested", _UNSIGNED) for leg in safe]
    cells = [
        ABSENT if leg is None or leg.estimate is None else Cell(text=f"{labels.leg(leg)}{sign}", tone=tone)
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
    return Cell(text=f"{say.signed(100 * worst.difference.value, 1)} pp at {say.tokens(worst.context_tokens)} ({down} of {len(buckets)})")


def _gpus(view: View) -> Iterator[_Row]:
    found = [saved(view, arm) for arm in view.arms[1:]]
    if any(each.tone != "muted" for each in found):
        peak = view.evidence.deployment.peak_agents
        at_peak = f" at your peak of {say.plural(peak, 'agent')}" if peak else ""
        yield _Row(name=f"GPUs saved{at_peak}", cells=(_EMPTY, *(Cell(text=each.word, tone=each.tone) for each in found)))


def saved(view: View, arm: str) -> Answer:
    """Say how many GPUs an arm saves, and what that is worth."""
    question, gpus = "GPUs saved", view.evidence.gpus
    reference, mine = view.capacity(view.evidence.reference), view.capacity(arm)
    if reference is None or mine is None or reference.replicas_at_peak is None or mine.replicas_at_peak is None:
        known = all(each is not None and each.agents_per_gpu is not None for each in (mine, reference))
        reasons = [each.reason for each in (mine, reference) if each is not None and each.replicas_at_peak is None]
        if known and view.evidence.deployment.peak_agents is None:
            reasons = ["set load.peak_agents in the policy, your agents at peak"]
        because = reasons[0] if reasons else "capacity was not measured"
        return Answer(question=question, word="not known", tone="muted", because=view.typeset(because))
    fewer = gpus(reference.arm) * reference.replicas_at_peak - gpus(mine.arm) * mine.replicas_at_peak
    word, is_sure = say.number(fewer), True
    if reference.fewest_replicas is not None and mine.most_replicas is not None:
        surely = gpus(reference.arm) * reference.fewest_replicas - gpus(mine.arm) * mine.most_replicas
        word, is_sure = word if surely == fewer else f"{say.number(surely)} to {word}", surely > 0
    elif mine.agents_per_gpu is not None and fewer > 0:
        word, is_sure = f"up to {word}", False
    tone: Tone = "bad" if fewer < 0 else "good" if fewer > 0 and is_sure else "plain"
    return Answer(question=question, word=word, tone=tone, because=f"{_due(view, reference, mine)}{_money(view, fewer)}")


def _money(view: View, gpus: int) -> str:
    """Say what this many GPUs cost a month, where a price is known."""
    price = view.evidence.deployment.gpu.usd_per_hour
    if price is None or not gpus:
        return ""
    return f"; {say.number(abs(gpus) * price * HOURS_A_MONTH)} USD a month {'less' if gpus > 0 else 'more'} at {price:g} USD a GPU-hour"


def _due(view: View, reference: Capacity, mine: Capacity) -> str:
    peak = view.evidence.deployment.peak_agents
    at_peak = f" at your peak of {say.plural(peak, 'agent')}" if peak else ""
    need = f"{labels.arm(mine.arm)} needs {say.plural(mine.replicas_at_peak or 0, 'replica')}{at_peak}"
    need += f", {labels.arm(reference.arm)} {reference.replicas_at_peak}"
    if reference.next_replica_at_agents is None or mine.next_replica_at_agents is None:
        return need
    return f"{need}; the next one is due at {mine.next_replica_at_agents} agents instead of {reference.next_replica_at_agents}"


def _verdicts(view: View, workload: str | None) -> Iterator[_Row]:
    found = [view.verdict(arm, workload) for arm in view.arms[1:]]
    if any(found) and view.facts.made.compared_with is None:
        yield _Row(
            name="verdict",
            cells=(
                _EMPTY,
                *(
                    ABSENT if each is None else Cell(text=f"{words(each)}{need(each)}", tone=labels.VERDICT_TONES[each.verdict])
                    for each in found
                ),
            ),
        )


def words(verdict: ArmVerdict) -> str:
    """Say a verdict in a few words."""
    match verdict.verdict:
        case "use":
            return "use, canary first" if verdict.canary else "use"
        case "calibrate":
            return "calibrate, then test again"
        case "avoid" | "no difference" | "test further":
            return verdict.verdict


def need(verdict: ArmVerdict, *, is_whole: bool = False) -> str:
    """Say what the missing evidence takes: `: +260 calls, 7 min`; what has to be played again is named though nobody knows its cost."""
    if verdict.verdict != "test further":
        return ""
    first: dict[str, str] = {}
    costs: list[Need] = []
    for each in verdict.needs:
        if isinstance(each.step, Again):
            first.setdefault("again", "a run without the failed check")
        elif (told := labels.cost(each)) and labels.noun(each) not in first:
            first[labels.noun(each)] = f"+{told}"
            costs.append(each)
    if is_whole or len(first) < 2:
        return f": {' and '.join(first.values())}" if first else ""
    # A cell has room for counts, and for what all of them take.
    counts = (told.partition(", ")[0].replace("paired ", "") for told in first.values())
    return f": {', '.join((' and '.join(counts), *(labels.spent(costs) if len(costs) == len(first) else ())))}"
