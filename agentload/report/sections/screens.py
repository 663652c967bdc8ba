"""The two tables of the first screen: the whole server on the user's mix, and each workload class."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from advisor.verdict import ArmVerdict, LegState
from agentload.report import format as say
from agentload.report import labels
from agentload.report.labels import cost, noun
from agentload.report.parts import Cell, Table, Tone, table
from agentload.report.sections.view import View

_SIGNS: Final[dict[LegState, tuple[str, Tone]]] = {"yes": (" ✓", "good"), "equal": (" ✓", "good"), "no": (" ✗", "bad")}
SECONDARY: Final = "The mix decides. Verdicts on classes are secondary: their intervals are not adjusted for how many classes there are."
ABSENT: Final = Cell(text=say.ABSENT, tone="muted")


def server(view: View) -> Table:
    """Compare the arms as servers: one flag serves all classes, so this decides."""
    items, _ = _asked(view)
    rows: tuple[tuple[str, Callable[[View, str], Cell]], ...] = (
        ("agent turn time, weighted", _turn_time),
        ("agents per GPU within SLO", _agents),
        ("KV pool; cached prompt share", _pool),
        (f"answers right, {say.plural(items, 'pair') if items else 'not tested'}", _answers),
        ("worst bucket; buckets down", _buckets),
        ("verdict for the server", _verdict),
    )
    cells = [(Cell(text=name), *(make(view, arm) for arm in view.arms)) for name, make in rows]
    optional = {"KV pool; cached prompt share", "worst bucket; buckets down"}
    kept = [row for row in cells if row[0].text not in optional or any(cell != ABSENT for cell in row[1:])]
    return table("Whole server, your mix", ("", *map(labels.arm, view.arms)), kept)


def _turn_time(view: View, arm: str) -> Cell:
    if arm == view.evidence.reference:
        return Cell(text="0")
    change = view.change("turn_ms", arm, None)
    return (
        ABSENT if change is None else Cell(text=say.change(change.relative), tone="strong" if arm == view.decision.choice.arm else "plain")
    )


def _agents(view: View, arm: str) -> Cell:
    capacity = view.capacity(arm)
    if capacity is None or capacity.agents_per_gpu is None:
        return ABSENT
    return Cell(text=say.spread(capacity.agents_per_gpu, say.carried), tone="strong" if arm == view.decision.choice.arm else "plain")


def _pool(view: View, arm: str) -> Cell:
    ours, theirs = view.evidence.arm(arm).pool_tokens, view.evidence.arm(view.evidence.reference).pool_tokens
    figures = view.evidence.telemetry(None, arm)
    if not (ours and theirs) and (figures is None or figures.hit_rate is None):
        return ABSENT
    pool = f"{say.number(ours / theirs, 2)}×" if ours and theirs else say.ABSENT
    return Cell(text=f"{pool}; {say.percent(figures.hit_rate if figures else None)}")


def _asked(view: View) -> tuple[int, float]:
    """Return how many items both arms were asked, and how many of them the reference got right; a graded one counts in part."""
    buckets = [bucket for bucket in view.evidence.accuracy if bucket.arm == view.focus]
    items = sum(bucket.items if bucket.reference_scores is None else len(bucket.reference_scores) for bucket in buckets)
    right = sum(
        bucket.both + bucket.reference_only if bucket.reference_scores is None else float(bucket.reference_scores.sum())
        for bucket in buckets
    )
    return items, right


def _answers(view: View, arm: str) -> Cell:
    if arm == view.evidence.reference:
        items, right = _asked(view)
        return Cell(text=f"{say.number(100 * right / items, 1)} %") if items else ABSENT
    verdict = view.verdict(arm, None)
    if verdict is None or verdict.safe.estimate is None:
        return ABSENT
    sign, tone = _SIGNS.get(verdict.safe.state, ("", "plain"))
    return Cell(text=f"{labels.leg(verdict.safe)}{sign}", tone=tone)


def _buckets(view: View, arm: str) -> Cell:
    buckets = [bucket for bucket in view.decision.accuracy if bucket.arm == arm]
    if not buckets:
        return ABSENT
    worst = min(buckets, key=lambda bucket: bucket.difference.value)
    down = sum(bucket.difference.value < 0 for bucket in buckets)
    return Cell(text=f"{say.tokens(worst.context_tokens)} {say.signed(100 * worst.difference.value, 1)} pp; {down} of {len(buckets)}")


def _verdict(view: View, arm: str) -> Cell:
    if arm == view.evidence.reference:
        return Cell(text="today", tone="muted")
    verdict = view.verdict(arm, None)
    if verdict is None:
        return ABSENT
    return Cell(text=f"{words(verdict)}{need(verdict)}", tone=labels.VERDICT_TONES[verdict.verdict])


def words(verdict: ArmVerdict) -> str:
    """Say a verdict in a few words."""
    match verdict.verdict:
        case "use":
            return "use, canary first" if verdict.canary else "use"
        case "calibrate":
            return "calibrate, then re-test"
        case "avoid" | "no difference" | "test further":
            return verdict.verdict


def need(verdict: ArmVerdict, *, is_whole: bool = False) -> str:
    """Say what the missing evidence costs: `: +260 calls, 7 min`."""
    if verdict.verdict != "test further":
        return ""
    first: dict[str, str] = {}
    for each in verdict.needs:
        if told := cost(each):
            first.setdefault(noun(each), told)
    if not is_whole and len(first) > 1:  # a cell has room for counts
        first = {kind: told.partition(", ")[0].replace("paired ", "") for kind, told in first.items()}
    return f": +{' and '.join(first.values())}" if first else ""


def classes(view: View) -> Table | None:
    """Compare the arms class by class; None when the run had no classes."""
    if not view.workloads:
        return None
    challengers = view.arms[1:]
    focus = labels.arm(view.focus)
    ttft, first_token = _first_token(view)
    columns = (
        "class (share of server time)",
        *(f"{labels.arm(arm)} turn time" for arm in challengers),
        f"{focus} {ttft}",
        f"verdict for {focus}",
    )
    rows = (_class_row(view, name, first_token) for name in view.workloads)
    return table("By workload class", columns, rows, SECONDARY if len(view.workloads) > 1 else "")


def _first_token(view: View) -> tuple[str, Callable[[View, str], Cell]]:
    """Say of the first token how it stands against its limit; where none was agreed, how it changed."""
    agreed = any((slo := view.policy.slo(name)) is not None and slo.ttft_ms is not None for name in view.workloads)
    if not agreed and any(view.change("ttft_ms", view.focus, name) for name in view.workloads):
        return "first token", lambda view, name: _change(view, "ttft_ms", view.focus, name)
    shown = {part for name in view.workloads if (part := _part(view, name)) is not None} or {"p95"}
    part = shown.pop() if len(shown) == 1 else None
    return f"TTFT {part}" if part else "TTFT", partial(_ttft, is_mixed=part is None)


def _class_row(view: View, workload: str, first_token: Callable[[View, str], Cell]) -> tuple[Cell, ...]:
    share = next(each.gpu_time_share for each in view.evidence.workloads if each.name == workload)
    name = f"{workload} {say.percent(share)}" if share is not None else workload
    verdict = view.verdict(view.focus, workload)
    return (
        Cell(text=name),
        *(_change(view, "turn_ms", arm, workload) for arm in view.arms[1:]),
        first_token(view, workload),
        ABSENT if verdict is None else Cell(text=f"{words(verdict)}{need(verdict)}", tone=labels.VERDICT_TONES[verdict.verdict]),
    )


def _part(view: View, workload: str) -> str | None:
    """Name the quantile of a class that can be shown: with too few sessions for a p95 the median says at least where it lies."""
    return next((part for part in ("p95", "p50") if view.figure(f"ttft_ms.{part}", view.focus, workload) is not None), None)


def _ttft(view: View, workload: str, *, is_mixed: bool) -> Cell:
    part = _part(view, workload)
    found = view.figure(f"ttft_ms.{part}", view.focus, workload)
    if found is None:
        return ABSENT
    text = f"{part} {say.duration(found.estimate.value)}" if is_mixed else say.duration(found.estimate.value)
    slo = view.policy.slo(workload)
    if part == "p50":
        return Cell(text=text, tone="muted")
    if slo is None or slo.ttft_ms is None:
        return Cell(text=text)
    return Cell(text=f"{text} (SLO {say.duration(slo.ttft_ms)})", tone="bad" if found.estimate.is_above(slo.ttft_ms) else "plain")


def _change(view: View, metric: str, arm: str, workload: str) -> Cell:
    change = view.change(metric, arm, workload)
    if change is not None:
        return Cell(text=say.change(change.relative))
    calls = view.evidence.calls(workload, arm)
    return Cell(text=say.plural(len(calls), "call"), tone="muted") if calls is not None else ABSENT
