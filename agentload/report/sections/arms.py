"""Lay out every arm next to the reference: its own figures, and how far they are apart.

There is the table of the first screen, and one by class where there are several. A verdict on an
arm has three criteria: speed (`pays`), accuracy (`safe`) and capacity, the agents per GPU.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from advisor.estimate import Estimate, present
from advisor.evidence import Telemetry
from advisor.legs.speed import INDIFFERENT, UNJUDGED
from advisor.steps import Again
from advisor.verdict import ArmVerdict, Change, Decision, Figure, Need
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Cell, Field, Table, Tone, in_grey, table
from agentload.report.sections.answers import DROP, answers
from agentload.report.sections.gpus import agents, at_peak, count, fewer_at_peak, saving
from agentload.report.sections.rows import ABSENT, ArmCells, ArmsRow, Printed, row
from agentload.report.sections.typical import METRICS, Typical, alone, typical
from agentload.report.sections.view import View

SECONDARY: Final = (
    "The mix decides. Verdicts on classes are secondary: their intervals are not adjusted "
    "for how many classes there are."
)
MEANS: Final = (
    "Latencies are geometric means over the turns that ended on both arms; a change is of the "
    "same turns."
)

AGENTS: Final = "agents per GPU within the SLO ↑"


def server(view: View) -> Table:
    """Compare the arms over the whole mix.

    The verdict rests on this, as a server has one configuration for all classes. What was not
    measured has no row.
    """
    only = view.workloads[0] if len(view.workloads) == 1 else None
    rows = (
        *_latencies(view, None),
        *_elsewhere(view),
        *_first_token(view, only),
        *_rates(view),
        *_agents(view, None),
        *_pool(view),
        *answers(view),
        *_gpus(view),
        *_verdicts(view, None),
    )
    note = (
        MEANS if view.decision.changes else "",
        _bold(rows),
        _margin(view),
        _weights(view),
        _levels(view),
        _saving(view),
    )
    return _table(view, "This mix", rows, note, head=_head(view, rows))


def _saving(view: View) -> str:
    """Say how many GPUs are saved, where that is known."""
    saved = saving(view)
    if not view.others or saved.tone == "muted":
        return ""
    return f"{saved.because}."


def _head(view: View, rows: Sequence[ArmsRow]) -> str:
    """Say how many pairs figures rest on, and which direction is better; empty for one arm."""
    if not view.others:
        return ""
    has_rising = any("↑" in each.name for each in rows)
    directions = {"lower is better": rows, "↑: higher is better": has_rising}
    return say.join((_pairs_played(view), say.join_if(directions)), "; ")


def _pairs_played(view: View) -> str:
    """Say how many block pairs the figures rest on."""
    return say.plural(view.played, "block pair") if view.played else ""


def _bold(rows: Iterable[ArmsRow]) -> str:
    """Say what bold figures are, where there are any."""
    is_bold = any(each.change.tone == "strong" for row in rows for each in row.arms)
    return "Bold: the arm to use." if is_bold else ""


def _weights(view: View) -> str:
    """Say how questions of several lengths are joined to one accuracy."""
    asked = [each.safe.answers for each in view.decision.server]
    is_weighed = any(each is not None and len(each.lengths) > 1 for each in asked)
    return "Accuracy weighs each length by your calls of that length." if is_weighed else ""


def _margin(view: View) -> str:
    """Say once how large a change counts, and what it takes to call two arms equal."""
    if not any(change.metric == "turn_ms" for change in view.decision.changes):
        return ""
    least = f"{say.shorten(100 * view.policy.min_change)}%"
    within = f"{say.shorten(100 * INDIFFERENT * view.policy.min_change)}%"
    return (
        f"A change counts from {least} (min_change). “No difference” needs a change within "
        f"±{least} whose whole interval is within ±{within}."
    )


def _levels(view: View) -> str:
    """Say at which level the intervals are: by kind, where they differ."""
    changes = (each.relative for each in view.decision.changes if each.workload is None)
    of_latency = _level(changes)
    of_accuracy = _level(verdict.safe.estimate for verdict in view.decision.server)
    if of_latency and of_accuracy and of_latency != of_accuracy:
        return f"Intervals are of latency {of_latency} and of accuracy {of_accuracy}."
    level = of_latency or of_accuracy
    return f"Intervals are {level}." if level else ""


def _level(intervals: Iterable[Estimate | None]) -> str:
    """Return the level of the first interval: `at 95%`; empty without one."""
    known = present(intervals)
    return f"at {100 * known[0].level:.3g}%" if known else ""


def criteria(view: View) -> Table:
    """Compare the arms by each criterion that the reader asked for, one row each.

    The rows are those of `server`; one that was not measured says why.
    """
    peak = at_peak(view)
    speed = METRICS[0][1]
    latencies = [each for each in _latencies(view, None) if each.name == speed]
    rows = latencies or _reasons(view, speed, _why_untimed)
    per_gpu = [*_agents(view, None)]
    if not per_gpu and (view.policy.slos or peak):
        per_gpu = _reasons(view, AGENTS, _why_uncounted)
    rows += per_gpu
    if peak:
        rows += [*_gpus(view)] or _reasons(view, f"GPUs{peak}", _why_unsized)
    else:
        rows += _cost(view)
    accuracy = [each for each in answers(view) if not each.name.startswith(DROP)]
    rows += accuracy or _reasons(view, "accuracy ↑", _why_unasked)
    return _table(view, "Criteria", rows, (), head=_pairs_played(view))


def _reasons(view: View, name: str, why: Callable[[View, ArmVerdict], str]) -> list[ArmsRow]:
    """Return the row of a criterion without figures, which says of each arm why."""
    verdicts = view.verdicts(None)
    if not any(verdicts):
        return []
    causes = say.where_known(verdicts, lambda each: in_grey(view.typeset(why(view, each))))
    return [row(name, changes=causes)]


def _why_untimed(_: View, verdict: ArmVerdict) -> str:
    """Say why turns were not timed.

    The cause is the last clause: before it stands what was said of GPUs.
    """
    reason = verdict.pays.reason
    cause = reason.rpartition(UNJUDGED if UNJUDGED in reason else "; ")[2]
    return f"not measured: {cause}"


def _why_uncounted(view: View, verdict: ArmVerdict) -> str:
    leg = verdict.capacity
    if leg is not None and leg.state == "equal":
        return f"no difference: {leg.reason.partition(': ')[0]}"
    for arm in (verdict.arm, view.reference):
        capacity = view.capacity(arm)
        if capacity is not None and capacity.agents_per_gpu is None:
            return f"not measured: {capacity.reason}"
    return "not measured: no load was tried for it"


def _why_unsized(_: View, __: ArmVerdict) -> str:
    return "not known without agents per GPU"


def _why_unasked(_: View, verdict: ArmVerdict) -> str:
    """Say why no question was graded, or by what else the answers are judged."""
    leg = verdict.safe
    if leg.state not in ("untested", "unclear"):
        return leg.reason
    if verdict.verdict != "test further":
        return "not asked: it would not change the verdict"
    return leg.reason.replace("accuracy was not tested", "not measured: no question was asked", 1)


def classes(view: View) -> Table:
    """Compare the arms class by class, the one with most of the server's time first.

    The table of a single class is that of the first screen.
    """
    shares = {each.name: each.gpu_time_share for each in view.evidence.workloads}
    rows: list[ArmsRow] = []
    for name in view.workloads if len(view.workloads) > 1 else ():
        share = "" if shares[name] is None else f" {say.percent(shares[name])}"
        own = (
            *_latencies(view, name),
            *_first_token(view, name),
            *_agents(view, name),
            *_verdicts(view, name),
        )
        rows += [replace(each, name=f"{name}{share}: {each.name}") for each in own]
    return _table(view, "By workload class, with its share of server time", rows, [SECONDARY])


def _table(
    view: View, title: str, rows: Sequence[ArmsRow], note: Iterable[str], *, head: str = ""
) -> Table:
    """Lay out rows: the reference, then each arm's own figure and its change."""
    columns = [head, view.against]
    for name in map(labels.arm, view.others):
        change = "change" if len(view.others) == 1 else f"{name}: change"
        columns += [name, change]
    laid: list[list[Field]] = []
    for each in rows:
        fields: list[Field] = [each.name, each.reference]
        for arm in each.arms:
            fields += [arm.own, arm.change]
        laid.append(fields)
    if any(each.noise is not None for each in rows):
        columns.append("noise")
        for fields, each in zip(laid, rows, strict=True):
            fields.append(_noise(each.noise))
        note = (*note, "Noise: what two identical servers may differ by (A/A).")
    return table(title, columns, laid, say.join(note, " "))


def _noise(floor: float | None) -> Cell:
    if floor is None:
        return in_grey("")
    return in_grey(f"±{say.tenths(floor)}")


def _latencies(view: View, workload: str | None) -> Iterator[ArmsRow]:
    """Yield what the same turns take on every arm, and by how much that differs."""
    means = typical(view, workload)
    for metric, words in METRICS:
        changes = view.changes(metric, workload)
        if any(changes):
            reference, *own = _times(view, means.get(metric))
            changed = _changes(view, changes, workload)
            floors = present(each.floor for each in present(changes))
            yield ArmsRow(
                name=words,
                reference=reference,
                arms=tuple(map(ArmCells, own, changed)),
                noise=max(floors, default=None),
            )
        elif metric == "turn_ms" and workload is not None:
            yield _uncompared_row(view, words, workload)


def _times(view: View, found: Typical | None) -> tuple[Cell, ...]:
    """Print one latency of every arm, the reference first."""
    if found is None:
        return (ABSENT,) * len(view.arms)
    times = (found.reference, *map(found.arms.get, view.others))
    return tuple(ABSENT if each is None else Cell(text=each) for each in say.durations(times))


def _uncompared_row(view: View, words: str, workload: str) -> ArmsRow:
    """Say of a class that was not compared why: its calls failed, or too few ended well."""
    of_arms = []
    for arm in view.arms:
        calls = view.evidence.calls(workload, arm)
        if calls is None:
            of_arms.append(ArmCells(ABSENT, ABSENT))
            continue
        took = alone(calls, "turn_ms")
        ended = int(calls.ok.sum())
        why = f"{say.plural(ended, 'call')}: too few" if ended else "every call failed"
        own = ABSENT if took is None else Cell(text=say.duration(took))
        of_arms.append(ArmCells(own, in_grey(why)))
    reference, *others = of_arms
    return ArmsRow(name=words, reference=reference.own, arms=tuple(others))


def _elsewhere(view: View) -> Iterator[ArmsRow]:
    """Yield how turn latencies compare under loads that no pair was played under.

    They are simulated, by the twins of the arms.
    """
    by_load: dict[tuple[bool, int], dict[str, str]] = {}
    for each in view.decision.twin_changes:
        changes = by_load.setdefault((each.is_own, each.agents), {})
        changes[each.arm] = say.change(each.relative)
    for (is_own, _), changes in by_load.items():
        load = "at your peak" if is_own else "for hours"
        texts = [changes.get(arm) for arm in view.others]
        yield row(f"turn latency {load} (twins)", changes=texts)


def _changes(view: View, changes: Sequence[Change | None], workload: str | None) -> Iterator[Cell]:
    for arm, each in zip(view.others, changes, strict=True):
        if each is None:
            yield ABSENT
            continue
        text = say.change(each.relative)
        if not view.has_valid_timings(arm, workload):
            yield in_grey(f"{text}, not valid")
        elif each.floor is None or abs(each.relative.value) > each.floor:
            is_chosen = workload is None and arm == view.decision.choice.arm
            yield Cell(text=text, tone="strong" if is_chosen else "plain")
        else:
            # An interval around zero says by itself that there is no change.
            excludes_zero = each.relative.is_above(0.0) or each.relative.is_below(0.0)
            yield in_grey(f"{text}, within noise" if excludes_zero else text)


def _first_token(view: View, workload: str | None) -> Iterator[ArmsRow]:
    """Yield the time to first token of a class that has a limit for it.

    With too few sessions for a p95, the median.
    """
    slo = view.policy.slo(workload) if workload is not None else None
    if slo is None or slo.ttft_ms is None:
        return
    tone_if_late: Tone = "bad"
    for part in ("p95", "p50"):
        figures = view.figures(f"ttft_ms.{part}", workload)
        if any(figures):
            name = f"TTFT {part} (limit {say.duration(slo.ttft_ms)})"
            yield row(
                name, [_time_within_limit(each, slo.ttft_ms, tone_if_late) for each in figures]
            )
            return
        tone_if_late = "plain"  # a median above a limit on p95 is not marked


def _time_within_limit(figure: Figure | None, limit_ms: float, tone_if_late: Tone) -> Cell:
    """Print a time, marked where it is surely above its limit."""
    if figure is None:
        return ABSENT
    is_late = figure.estimate.is_above(limit_ms)
    text = say.apart_from(limit_ms, figure.estimate.value, say.duration)
    return Cell(text=text, tone=tone_if_late if is_late else "plain")


def _rates(view: View) -> Iterator[ArmsRow]:
    """Yield what a GPU puts out and what turns cost.

    A change is the ratio of both figures, without an interval.
    """
    replicas = view.evidence.deployment.replicas
    per_gpu = {arm: 1 / (view.evidence.gpus(arm) * replicas) for arm in view.arms}
    yield from _rate(view, "output tokens/s per GPU ↑", "output_tokens_per_s", per_gpu)
    yield from _cost(view)


def _cost(view: View) -> Iterator[ArmsRow]:
    thousand = dict.fromkeys(view.arms, 1_000.0)
    yield from _rate(view, "cost of 1,000 turns, USD", "usd_per_turn", thousand)


def _rate(view: View, words: str, name: str, factors: Mapping[str, float]) -> Iterator[ArmsRow]:
    figures = view.figures(name, None)
    if not any(figures):
        return
    values: list[float | None] = [
        None if each is None else each.estimate.value * factors[each.arm] for each in figures
    ]
    reference, *own = values
    changes: list[Printed] = []
    for arm, value in zip(view.others, own, strict=True):
        change = _quotient(reference, value)
        if change and not view.has_valid_timings(arm, None):
            changes.append(in_grey(f"{change}, not valid"))
        else:
            changes.append(change)
    yield row(words, say.numbers(values), changes=changes)


def _quotient(before: float | None, after: float | None) -> str:
    if not before or after is None:
        return ""
    return f"{say.with_sign(100 * (after / before - 1))}%"


def _agents(view: View, workload: str | None) -> Iterator[ArmsRow]:
    found = [view.capacity(arm, workload) for arm in view.arms]
    carried = say.where_known(found, lambda each: agents(view, each))
    if present(carried):
        changes = [_more_agents(each) for each in view.verdicts(workload)]
        yield row(AGENTS, carried, changes=changes)


def _more_agents(verdict: ArmVerdict | None) -> str:
    """Print by how much more agents an arm carries than the reference, open where that is."""
    leg = None if verdict is None else verdict.capacity
    if leg is None or leg.estimate is None:
        return ""
    is_open = ", open" if leg.state == "unclear" else ""
    return f"{labels.leg(leg)}{is_open}"


def _pool(view: View) -> Iterator[ArmsRow]:
    """Yield the KV pools and their hits where the pool of an arm was full for a while."""
    seen = [view.evidence.telemetry(None, arm) for arm in view.arms]
    filled = say.where_known(seen, lambda each: each.pool_filled_share)
    if not any(filled):
        return
    yield from _pool_tokens(view)
    yield row("time with the KV pool full", say.where_known(seen, _filled))
    hits = say.where_known(seen, lambda each: each.hit_rate)
    if present(hits):
        yield row("cache hit rate ↑", list(map(_hits, hits)))


def _filled(seen: Telemetry) -> str:
    return say.percent(seen.pool_filled_share)


def _pool_tokens(view: View) -> Iterator[ArmsRow]:
    pools = [view.evidence.arm(arm).pool_tokens for arm in view.arms]
    if not any(pools):
        return
    reference, *others = pools
    ratios = [
        f"{say.number(each / reference, 2)}×" if each and reference else "" for each in others
    ]
    yield row("KV pool, tokens ↑", say.where_known(pools, say.number), changes=ratios)


def _hits(rate: float | None) -> Cell | str:
    text = say.percent(rate)
    if rate is None or rate <= 1:
        return text
    return in_grey(f"{text}, not valid")


def _gpus(view: View) -> Iterator[ArmsRow]:
    """Yield the GPUs of every arm at the peak, with those that the others save."""
    found = [view.capacity(arm) for arm in view.arms]
    needed = say.where_known(found, lambda each: each.gpus_at_peak)
    if any(needed):
        changes = [fewer_at_peak(view, arm) for arm in view.others]
        yield row(f"GPUs{at_peak(view)}", say.where_known(needed, count), changes=changes)


def _verdicts(view: View, workload: str | None) -> Iterator[ArmsRow]:
    """Yield the verdicts.

    Left out for a single arm with nothing missing: the headline says its verdict.
    """
    found = view.verdicts(workload)
    if not any(found) or view.compares_runs:
        return
    only = found[0] if len(found) == 1 and workload is None else None
    if only is not None and not need(view.decision, only):
        return
    yield row("verdict", changes=say.where_known(found, lambda each: _verdict(view, each)))


def _verdict(view: View, verdict: ArmVerdict) -> Cell:
    text = f"{words(verdict)}{need(view.decision, verdict)}"
    return Cell(text=text, tone=labels.VERDICT_TONES[verdict.verdict])


def words(verdict: ArmVerdict) -> str:
    """Say a verdict in a few words, and up to which context it holds."""
    to = labels.up_to(verdict.holds_to)
    match verdict.verdict:
        case "use":
            if verdict.canary:
                return f"use{to}, canary first"
            return f"use{to}"
        case "calibrate":
            return "calibrate, then test again"
        case "avoid" | "no difference" | "test further":
            return f"{verdict.verdict}{to}"


def need(decision: Decision, verdict: ArmVerdict, *, is_whole: bool = False) -> str:
    """Say what the missing evidence takes: `: +260 calls, 7 min`.

    What has to be played again is named although its cost is not known. Nothing is said of a
    class while the whole server is open: what settles that is said once.
    """
    if verdict.verdict != "test further" or decision.waits_for_mix(verdict):
        return ""
    is_again = any(isinstance(each.step, Again) for each in verdict.needs)
    costs = ["a run without the failed check"] if is_again else []
    wanted = _first_by_noun(verdict.needs)
    costs += [f"+{labels.cost(each)}" for each in wanted]
    if not costs:
        return ""
    if is_whole or len(costs) == 1:
        return f": {' and '.join(costs)}"
    # A cell has room for counts, and for what all of them take.
    counts = (cost.partition(", ")[0].replace("paired ", "") for cost in costs)
    # The cost of a part that is played again is not known, so there is no total with it.
    spent = () if is_again else labels.totals(wanted)
    return f": {say.join((' and '.join(counts), *spent))}"


def _first_by_noun(needs: Iterable[Need]) -> Collection[Need]:
    """Return the first need of each kind whose cost is known; what is played again has none."""
    wanted: dict[str, Need] = {}
    for each in needs:
        if labels.cost(each) and not isinstance(each.step, Again):
            wanted.setdefault(labels.noun(each), each)
    return wanted.values()
