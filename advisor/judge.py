"""Give one verdict: legs first, then what the rules ask for, then the caps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from advisor import words
from advisor.case import Case
from advisor.legs.capacity import AGENTS, capacity_leg
from advisor.legs.pays import pays_leg
from advisor.legs.safe import safe_leg
from advisor.legs.speed import speed_leg
from advisor.legs.tested import after_holm
from advisor.verdict import ArmVerdict, Finding, Inequality, Leg, Word

WEIGHTY = 0.10  # share of the mix from which a class's veto binds the whole server


def concerning(case: Case, findings: Sequence[Finding], arm: str, workload: str | None) -> tuple[Finding, ...]:
    """Return the findings about *arm* in this scope; the whole server listens to the vetoes of its weighty classes as well."""
    shares = dict(case.shares)
    out = []
    for each in findings:
        if each.arm not in (None, arm):
            continue
        veto = each.asks_for == "avoid" and each.workload is not None and shares.get(each.workload, 0.0) >= WEIGHTY
        if each.workload in (None, workload) or (workload is None and veto):
            out.append(each)
    return tuple(out)


def _asked(findings: Sequence[Finding], word: Word) -> Finding | None:
    return next((each for each in findings if each.asks_for == word), None)


def _word(pays: Leg, safe: Leg, findings: Sequence[Finding]) -> tuple[Word, str]:
    """Return the verdict and the sentence that carries it."""
    veto, calibrate, cap = (_asked(findings, word) for word in ("avoid", "calibrate", "test further"))
    both = f"Pays: {pays.reason}. Safe: {safe.reason}."
    if safe.state == "no":
        return "avoid", f"Not safe: {safe.reason}."
    if veto is not None:
        return "avoid", veto.message
    if pays.state == "no":
        return "avoid", f"Does not pay: {pays.reason}."
    if pays.state == "equal":
        return "no difference", f"{pays.reason[0].upper()}{pays.reason[1:]}."
    if calibrate is not None:
        return "calibrate", calibrate.message
    if pays.state == "yes" and safe.state == "yes":
        return ("test further", f"{both} But {cap.message}") if cap is not None else ("use", both)
    return "test further", both


def _about_accuracy(case: Case, verdict: ArmVerdict) -> Inequality:
    worse = verdict.safe.state == "no"
    return Inequality(
        left=f"accuracy, {verdict.arm} - {case.evidence.reference}",
        observed=verdict.safe.estimate,
        relation="<" if worse else ">",
        right=f"-{100 * case.policy.accuracy_margin:.0f} pp",
        holds=True if worse else None,
    )


def inequality(case: Case, verdict: ArmVerdict) -> Inequality | None:
    """Return the comparison that decided, in parts: accuracy where it is what is wrong or missing, else what pays."""
    pays = verdict.pays
    open_answers = verdict.verdict in ("calibrate", "test further") and pays.state == "yes"
    if open_answers or verdict.safe.state == "no":
        return _about_accuracy(case, verdict)
    if pays.estimate is None or pays.margin is None:
        return None
    more = pays.estimate.method == AGENTS  # more agents are better, more milliseconds are worse
    what = "agents per GPU" if more else "turn time"
    left = f"{what} of {words.scope(verdict.workload)}, {verdict.arm} / {case.evidence.reference}"
    if pays.state == "equal":
        return Inequality(left=left, observed=pays.estimate, relation="inside", right=f"±{100 * pays.margin:.1f} %", holds=True)
    above = more != (pays.state == "no")
    return Inequality(
        left=left,
        observed=pays.estimate,
        relation=">" if above else "<",
        right=words.percent(pays.margin if above else -pays.margin),
        holds=True if pays.state in ("yes", "no") else None,
    )


def judge(case: Case, findings: Sequence[Finding], arm: str, workload: str | None) -> ArmVerdict:
    """Return the verdict on *arm* for *workload*, or for the whole server."""
    speed, safe = after_holm((speed_leg(case, arm, workload), safe_leg(case, arm, workload)), level=case.policy.alpha / 2)
    capacity = capacity_leg(case, arm, workload)
    pays = pays_leg(speed, capacity)
    mine = concerning(case, findings, arm, workload)
    word, reason = _word(pays, safe, mine)
    beyond = case.reach_of(arm, workload).beyond_share
    doubts = [each for each in mine if each.kind == "opposes" and each.leg in ("safe", "validity")]
    needs = (*pays.needs, *(need for need in safe.needs if need not in pays.needs)) if word == "test further" else ()
    asked = tuple(each.need for each in mine if word == "test further" and each.asks_for == word and each.need is not None)
    verdict = ArmVerdict(
        arm=arm,
        workload=workload,
        verdict=word,
        canary=word == "use" and (bool(doubts) or bool(beyond)),
        pays=pays,
        safe=safe,
        capacity=capacity,
        reason=reason,
        flips=_flips(word, pays, safe, mine),
        needs=(*needs, *(need for need in asked if need not in needs)),
        untested_share=beyond,
    )
    return replace(verdict, inequality=inequality(case, verdict))


def _flips(word: Word, pays: Leg, safe: Leg, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return what would turn the verdict round: thresholds first, then what the rules name."""
    out = []
    gain = pays.estimate
    if word == "use" and gain is not None and gain.method != AGENTS and gain.high is not None:
        out.append(f"a smallest change that counts above {-100 * gain.high:.1f} %")
    if word == "avoid" and pays.state == "no" and gain is not None and gain.low is not None:
        out.append(f"a smallest change that counts above {100 * gain.low:.1f} %")
    if word == "no difference" and gain is not None and gain.low is not None and gain.high is not None:
        out.append(f"a smallest change that counts below {100 * max(abs(gain.low), abs(gain.high)):.1f} %")
    if word == "use" and safe.estimate is not None and safe.estimate.low is not None:
        out.append(f"an accuracy margin below {-100 * safe.estimate.low:.1f} pp")
    out.extend(dict.fromkeys(each.flips for each in findings if each.flips is not None and each.kind != "informs"))
    return tuple(out)
