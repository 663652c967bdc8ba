"""Give one verdict: criteria first, then what the rules ask for, then what caps the verdict."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from advisor import words
from advisor.assess.speed import OF_TASKS
from advisor.bound import Bound, bound
from advisor.case import Case
from advisor.dtypes import is_quantised
from advisor.estimate import Estimate, present
from advisor.legs.capacity import AGENTS, capacity_leg, pays_leg
from advisor.legs.gpus import GPUS, gpus_leg, pays_by_gpus
from advisor.legs.level import SINGLE_SESSION, level_leg
from advisor.legs.safe import safe_leg
from advisor.legs.speed import INDIFFERENT, speed_leg
from advisor.legs.whole_time import with_total
from advisor.results import Tested
from advisor.steps import Calibrate
from advisor.verdict import ArmVerdict, Finding, Inequality, Leg, Need, Word

MISSED = "slo_broken"  # the rule about service levels, in every reason
BROKEN = "broken"  # the rule about answers that are wrong altogether: no scales fix them


def concerning(
    case: Case, findings: Sequence[Finding], arm: str, workload: str | None
) -> tuple[Finding, ...]:
    """Return the findings about *arm* in this scope.

    The whole server also takes from its weighty classes what asks to avoid an arm, and what
    is about speed.
    """
    binding = case.weighty() if workload is None else ()
    out = []
    for each in findings:
        if each.arm not in (None, arm) or not case.reaches_context(
            arm, workload, each.context_tokens
        ):
            continue
        is_taken = each.asks_for == "avoid" or _is_about_speed(each)
        if each.workload in (None, workload) or (is_taken and each.workload in binding):
            out.append(each)
    return tuple(out)


def _is_about_speed(finding: Finding) -> bool:
    return finding.leg == "pays" and (finding.asks_for == "test further" or finding.rule == MISSED)


def _first_asking(findings: Sequence[Finding], word: Word) -> Finding | None:
    """Return the first finding that asks for the verdict *word*; None where no finding does."""
    return next((each for each in findings if each.asks_for == word), None)


def _is_uncalibrated(case: Case, arm: str, workload: str | None) -> bool:
    """Say whether missing calibration may be all that is wrong with the answers of *arm*."""
    if case.accuracy_of(arm, workload) is None:
        return False
    server = case.evidence.arm(arm)
    return is_quantised(server) and server.scales in ("default", None)


def _word(
    pays: Leg, safe: Leg, findings: Sequence[Finding], *, uncalibrated: bool
) -> tuple[Word, str]:
    """Return the verdict and the sentence that gives its reason."""
    broken = _first_asking([each for each in findings if each.rule == BROKEN], "avoid")
    if broken is not None:
        return "avoid", broken.message
    veto = _first_asking(findings, "avoid")
    if safe.state == "no":
        if veto is None and pays.state == "yes" and uncalibrated:
            return "calibrate", f"{_both(pays, safe)} Its scales were not calibrated."
        return "avoid", f"Answers are worse: {safe.reason}."
    if veto is not None:
        return "avoid", veto.message
    same = _first_asking(findings, "no difference")
    if same is not None:
        return "no difference", same.message
    if pays.state == "no":
        return "avoid", f"It {_harm(pays)}: {pays.reason}."
    return _word_without_veto(pays, safe, findings)


def _word_without_veto(pays: Leg, safe: Leg, findings: Sequence[Finding]) -> tuple[Word, str]:
    """Return the verdict on an arm that nothing speaks against for certain."""
    slow = _first_asking(list(filter(_is_about_speed, findings)), "test further")
    if pays.state == "equal":
        equal = f"{_sentence(pays.reason)}."
        if slow is not None:
            return "test further", f"{equal} But {slow.message}"
        return "no difference", equal
    calibrate = _first_asking(findings, "calibrate")
    if calibrate is not None:
        return "calibrate", calibrate.message
    both = _both(pays, safe)
    if pays.state != "yes" or safe.state != "yes":
        return "test further", both
    cap = slow or _first_asking(findings, "test further")
    if cap is not None:
        return "test further", f"{both} But {cap.message}"
    return "use", both


def _both(pays: Leg, safe: Leg) -> str:
    return f"{_sentence(pays.reason)}; {safe.reason}."


def _harm(pays: Leg) -> str:
    found = pays.estimate
    if found is not None and found.method == SINGLE_SESSION:
        return "misses the service level"
    if found is None or found.method == AGENTS or (found.low or 0.0) <= 0:
        return "does not pay"
    return "needs more GPUs" if found.method == GPUS else "is slower"


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"


def _vetoed(leg: Leg, findings: Sequence[Finding]) -> Leg:
    """Return a criterion as "no" where a rule vetoes it: a report shows both as one."""
    veto = _first_asking([each for each in findings if each.leg == leg.name], "avoid")
    if veto is None or leg.state == "no":
        return leg
    reason = veto.message.rstrip(".")
    if leg.state != "untested":
        reason = f"{reason}; {leg.reason}"
    return replace(leg, state="no", reason=reason, needs=())


def _about_accuracy(case: Case, verdict: ArmVerdict) -> Inequality:
    worse = verdict.safe.state == "no"
    return Inequality(
        left=f"accuracy, {verdict.arm} - {case.evidence.reference}",
        observed=verdict.safe.estimate,
        relation="<" if worse else ">",
        right=f"-{100 * case.policy.accuracy_margin:.0f} pp",
        holds=True if worse else None,
    )


def _about_level(case: Case, verdict: ArmVerdict, share: Estimate) -> Inequality:
    slo = case.policy.slo(None)
    wanted = 0.0 if slo is None else slo.share
    return Inequality(
        left=f"turns of one session within the service level, {verdict.arm}",
        observed=share,
        relation=">=",
        right=f"{wanted:.0%}",
        holds=share.value >= wanted,
    )


NOT_LATENCY: Final = {AGENTS: "agents per GPU", GPUS: "GPUs at the peak"}
"""What an estimate compares, by its method, where it compares no latency."""


def measure(found: Estimate) -> str:
    """Name what an estimate compares."""
    latency = "task latency" if found.method.startswith(OF_TASKS) else "turn latency"
    return NOT_LATENCY.get(found.method, latency)


def inequality(case: Case, verdict: ArmVerdict) -> Inequality | None:
    """Return the comparison that decided, in parts; None where a rule decided, or nothing.

    It is that of accuracy where answers are what is wrong or missing, else that of what pays.
    """
    pays = verdict.pays
    safe = verdict.safe
    is_undecided = verdict.verdict in ("calibrate", "test further")
    if is_undecided and pays.state == "yes" and safe.state != "yes":
        return _about_accuracy(case, verdict)
    if safe.state == "no":
        # Without a p-value it is a rule's word, not a comparison.
        return None if safe.p is None else _about_accuracy(case, verdict)
    if pays.estimate is None:
        return None
    if pays.estimate.method == SINGLE_SESSION:
        return _about_level(case, verdict, pays.estimate)
    if pays.margin is None:
        return None
    return _about_margin(case, verdict, pays.estimate, pays.margin)


def _about_margin(case: Case, verdict: ArmVerdict, change: Estimate, margin: float) -> Inequality:
    scope = words.scope(verdict.workload)
    state = verdict.pays.state
    more_is_better = change.method == AGENTS  # more milliseconds are worse
    is_above = more_is_better != (state == "no")
    found = Inequality(
        left=f"{measure(change)} of {scope}, {verdict.arm} / {case.evidence.reference}",
        observed=change,
        relation=">" if is_above else "<",
        right=f"{'+' if is_above else '-'}{words.margin(margin)}",
        holds=True if state in ("yes", "no") else None,
    )
    if state == "equal":
        return replace(found, relation="inside", right=f"±{words.margin(margin)}", holds=True)
    return found


def _proven(tested: Tested) -> Leg:
    """Return a criterion with the p-value of what it claims."""
    p = {"yes": tested.p_for, "no": tested.p_against}.get(tested.leg.state)
    return replace(tested.leg, p=p)


def _decider(case: Case) -> tuple[str, ...]:
    """Say what decides, where that is not turn latency."""
    if case.decided_by == "latency":
        return ()
    if case.decided_by == "tasks":
        return ("Task latency decides, as --decide-by says.",)
    if case.policy.decide_by is not None:
        return ("GPUs decide, as --decide-by says.",)
    return ("GPUs decide because --slo and --agents were given.",)


def judge(case: Case, findings: Sequence[Finding], arm: str, workload: str | None) -> ArmVerdict:
    """Return the verdict on *arm* for *workload*, or for the whole server."""
    mine = concerning(case, findings, arm, workload)
    typical = speed_leg(case, arm, workload)
    is_by_task = case.decisive == "task_ms"  # which counts each second of a task already
    speed = _proven(typical if is_by_task else with_total(case, arm, workload, typical))
    capacity = capacity_leg(case, arm, workload)
    level = level_leg(case, arm, speed)
    pays = _vetoed(level or _paid(case, arm, workload, speed, capacity), mine)
    safe = _vetoed(_proven(safe_leg(case, arm, workload)), mine)
    word, reason = _word(pays, safe, mine, uncalibrated=_is_uncalibrated(case, arm, workload))
    # What a rule, an answer or a single session decides holds at every length.
    is_by_rule = _first_asking(mine, "avoid") is not None or case.evidence.arm(arm).twin
    is_by_load = level is None and safe.state != "no" and not is_by_rule
    limit = bound(case, arm, workload, word, is_by_load=is_by_load)
    remedy = _remedy(mine) if word == "avoid" or safe.state == "no" else None
    decider = _decider(case) if level is None else ()
    beyond = case.reach_of(arm, workload).beyond_share
    is_unbounded = bool(beyond) and limit is None
    is_doubted = is_unbounded or any(map(_is_doubt, mine))
    verdict = ArmVerdict(
        arm=arm,
        workload=workload,
        verdict=word,
        canary=word == "use" and is_doubted,
        pays=pays,
        safe=safe,
        capacity=capacity,
        reason=" ".join(_sentences(reason, mine, limit, decider, remedy)),
        remedy=remedy,
        needs=_needs(word, arm, (pays, safe), mine, limit),
        untested_share=beyond if limit is None else limit.calls,
        holds_to=None if limit is None else limit.to,
    )
    return replace(verdict, inequality=inequality(case, verdict), flips=_flips(case, verdict, mine))


def _sentences(
    reason: str,
    findings: Sequence[Finding],
    limit: Bound | None,
    decider: tuple[str, ...],
    remedy: str | None,
) -> Iterator[str]:
    """Yield the sentences of a verdict's reason, each limit that is broken among them."""
    yield reason
    for each in findings:
        if each.rule == MISSED and each.message not in reason:
            yield each.message
    if limit is not None:
        yield limit.reason
    yield from decider
    if remedy is not None:
        yield f"{_sentence(remedy)}, then test it again."


def _paid(case: Case, arm: str, workload: str | None, speed: Leg, capacity: Leg) -> Leg:
    """Return the criterion "pays" by what decides: GPUs at the peak, or turn latency."""
    if case.decided_by == "gpus":
        return pays_by_gpus(speed, gpus_leg(case, arm, workload, capacity))
    return pays_leg(speed, capacity, case.room(workload), least_change=case.policy.min_change)


def _remedy(findings: Sequence[Finding]) -> str | None:
    return next((each.remedy for each in findings if each.remedy is not None), None)


def _is_doubt(finding: Finding) -> bool:
    """Say whether a finding is a reason to let few users try an arm first."""
    is_about_answers = finding.leg in ("safe", "validity")
    return finding.kind == "opposes" and (is_about_answers or finding.rule == MISSED)


def _needs(
    word: Word,
    arm: str,
    criteria: tuple[Leg, Leg],
    findings: Sequence[Finding],
    limit: Bound | None,
) -> tuple[Need, ...]:
    """Return what would settle or widen a verdict."""
    match word:
        case "test further":
            asked = [each.need for each in findings if each.asks_for == word]
            needs = (*criteria[0].needs, *criteria[1].needs, *asked)
            return tuple(dict.fromkeys(need for need in needs if need is not None))
        case "calibrate":
            what = (
                f"calibrate the scales of {arm} on prompts of the trace, then ask it the same "
                "questions"
            )
            return (Need(what=what, step=Calibrate()),)
        case _:
            return () if limit is None else limit.needs


def _flips(case: Case, verdict: ArmVerdict, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return what would reverse the verdict: thresholds first, then what the rules name."""
    telling = [each for each in findings if each.kind != "informs"]
    of_rules = dict.fromkeys(present(each.flips for each in telling))
    return (*_of_speed(verdict), *_of_pool(case, verdict), *_of_answers(case, verdict), *of_rules)


FAR: Final = 10
"""Margins: a smallest change that is further off than so many of today's would be nobody's."""


def _of_speed(verdict: ArmVerdict) -> Iterator[str]:
    pays = verdict.pays
    gain = pays.estimate
    if gain is None or gain.method in NOT_LATENCY or gain.low is None or gain.high is None:
        return
    far = math.inf if pays.margin is None else FAR * pays.margin
    match verdict.verdict:
        case "use" if -gain.high <= far:
            yield f"a margin (min_change) above {-100 * gain.high:.1f}%"
        case "avoid" if pays.state == "no" and gain.low <= far:
            yield f"a margin (min_change) above {100 * gain.low:.1f}%"
        case "no difference":
            farthest = max(abs(gain.low), abs(gain.high))
            yield f"a margin (min_change) below {100 * farthest / INDIFFERENT:.1f}%"
        case "test further" if (
            pays.state == "unclear" and pays.margin is not None and not gain.is_within(pays.margin)
        ):
            whole = f"the whole interval of {measure(gain)}"
            margin = words.margin(pays.margin)
            twice = words.margin(INDIFFERENT * pays.margin)
            yield f"{whole} below -{margin} (now up to {words.percent(gain.high)}): use"
            yield f"{whole} above +{margin} (now down to {words.percent(gain.low)}): avoid"
            yield f"{whole} within ±{twice}: no difference"


def _of_pool(case: Case, verdict: ArmVerdict) -> Iterator[str]:
    state = verdict.pays.state
    capacity = verdict.capacity
    is_open = capacity is not None and capacity.state in ("unclear", "untested")
    if state == "unclear" and case.decided_by == "gpus":
        least = words.margin(case.policy.min_change)
        yield f"surely a GPU fewer at the peak, and {least} of them: use; that many more: avoid"
    elif state == "unclear" and is_open:
        least = words.margin(case.policy.min_capacity_gain)
        yield f"the whole interval of agents per GPU above +{least}: use"
    binds_from = case.room(verdict.workload).binds_from
    if state == "equal" and verdict.verdict == "no difference" and binds_from is not None:
        of = "" if verdict.workload is None else f" of {verdict.workload}"
        yield (
            f"a load of about {binds_from:,} sessions{of} at once: "
            f"{case.policy.capacity_binds_at:.0%} of {case.evidence.reference}'s KV pool, "
            "from where it counts as the bottleneck"
        )


def _of_answers(case: Case, verdict: ArmVerdict) -> Iterator[str]:
    safe = verdict.safe
    if safe.state == "no" and verdict.remedy is not None:
        yield verdict.remedy
    elif safe.state == "no" and case.broken_of(verdict.arm) is None:
        yield "calibrated scales, or a kernel that accumulates in higher precision: measure again"
    if safe.estimate is None or safe.estimate.low is None or words.is_vague(safe.estimate):
        return
    low = 100 * safe.estimate.low
    margin = 100 * case.policy.accuracy_margin
    if verdict.verdict == "use":
        yield f"an accuracy margin below {-low:.1f} pp"
    if verdict.verdict == "test further" and safe.state == "unclear" and low <= -margin:
        yield f"the lower end of accuracy above {-margin:.0f} pp (it is {low:+.2f} pp)"
