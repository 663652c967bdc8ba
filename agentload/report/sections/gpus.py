"""Say how many GPUs an arm saves at the peak, and what they cost a month."""

import math
import operator
from dataclasses import replace
from typing import Final

from advisor.assess.capacity import fewer_gpus
from advisor.estimate import Estimate, present
from advisor.verdict import Capacity
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Answer, Cell, Tone
from agentload.report.sections.view import View

HOURS_A_MONTH: Final = 730  # a twelfth of a year


def saving(view: View) -> Answer:
    """Say how many GPUs the arm saves that the report speaks for, and what that is worth."""
    reference = view.capacity(view.reference)
    own = view.capacity(view.focus)
    fewer = _fewer(view, view.focus)
    word = "not known"
    tone: Tone = "muted"
    if fewer is None or reference is None or own is None:
        because = view.typeset(_lacking(view, own, reference))
    else:
        because = f"{_due(view, reference, own)}{_money(view, view.focus, fewer)}"
        if not _is_unknown(fewer):
            word = count(fewer)
            tone = _tone(fewer)
    return Answer(question="GPUs saved", word=word, tone=tone, because=because)


def fewer_at_peak(view: View, arm: str) -> Cell:
    """Print how many GPUs fewer or more an arm needs at the peak; empty where that is unknown."""
    fewer = _fewer(view, arm)
    if fewer is None:
        return Cell(text="")
    if _is_unknown(fewer):
        return Cell(text="not known", tone="muted")
    if not any((fewer.value, fewer.low, fewer.high)):
        return Cell(text="as many")
    if fewer.value < 0:
        high, low = say.where_known((fewer.low, fewer.high), operator.neg)
        more = replace(fewer, value=-fewer.value, low=low, high=high)
        return Cell(text=f"{count(more)} more", tone=_tone(fewer))
    return Cell(text=f"{count(fewer)} fewer", tone=_tone(fewer))


def _fewer(view: View, arm: str) -> Estimate | None:
    """Return how many GPUs fewer than the reference an arm needs; None where that is unknown."""
    sides = (view.capacity(view.reference), view.capacity(arm))
    if _are_lower_bounds(*sides):
        return None
    return fewer_gpus(*say.where_known(sides, lambda each: each.gpus_at_peak))


def _is_unknown(fewer: Estimate) -> bool:
    """Tell whether nothing bounds a saving that is most likely none."""
    return not fewer.value and fewer.low is None and fewer.high is None


def _tone(fewer: Estimate) -> Tone:
    if fewer.is_above(0.0):
        return "good"
    return "bad" if fewer.is_below(0.0) else "plain"


def _are_lower_bounds(*sides: Capacity | None) -> bool:
    """Tell whether every arm met the SLO at every load tried.

    Its agents per GPU have no upper end then, so each arm may need one GPU alone.
    """
    found = say.where_known(sides, lambda each: each.agents_per_gpu)
    return all(each is not None and each.high is None and each.value > 0 for each in found)


def _lacking(view: View, *sides: Capacity | None) -> str:
    """Say why a saving is not known."""
    known = present(sides)
    is_measured = len(known) == len(sides) and all(each.agents_per_gpu for each in known)
    if is_measured and view.evidence.deployment.peak_agents is None:
        return "set load.peak_agents in the policy, your agents at peak"
    if _are_lower_bounds(*sides):
        return "both arms met the SLO at every load tried; try higher loads"
    silent = (each for each in known if each.gpus_at_peak is None)
    reasons = (f"{labels.arm(each.arm)}: {each.reason}" for each in silent)
    return next(reasons, "capacity was not measured")


def agents(view: View, capacity: Capacity) -> str | None:
    """Print how many agents a GPU carries; only loads that were tried are said to have failed."""
    found = capacity.agents_per_gpu
    if found is None:
        return None
    own = (capacity.arm, capacity.workload)
    tried = [each.agents for each in view.evidence.capacity if (each.arm, each.workload) == own]
    if not found.value:
        return f"fewer than {min(tried)}" if tried else "none"
    if found.high is None:
        met = "met at every load tried"
        if tried:
            met += f", up to {max(tried)} agents"
        least = found.low or 0.0
        return met if least < 1 else f"≥ {_whole_agents(least)} ({met})"
    return say.spread(found, say.number if found.value < 1 else _whole_agents)


def _whole_agents(count: float, decimals: int = 0) -> str:
    """Print agents that a GPU carries: a part of one is none."""
    return say.whole(math.floor(count + 1e-9), decimals)


def count(gpus: Estimate) -> str:
    """Print a number of GPUs; one that is known for certain has no interval."""
    is_exact = (gpus.low, gpus.high) == (gpus.value, gpus.value)
    if is_exact:
        return say.number(gpus.value)
    return say.spread(gpus, say.whole)


def at_peak(view: View) -> str:
    """Name the reader's peak."""
    peak = view.evidence.deployment.peak_agents
    if not peak:
        return ""
    return f" at your peak of {say.plural(peak, 'agent')}"


def _money(view: View, arm: str, fewer: Estimate) -> str:
    """Say what the GPUs cost a month at both ends of their interval, where a price is known.

    Empty for a saving that may be none, and for an arm that is not decided on.
    """
    price = view.evidence.deployment.gpu.usd_per_hour
    verdict = view.verdict(arm, None)
    is_open = verdict is None or verdict.verdict == "test further"
    is_certain = fewer.is_above(0.0) or fewer.is_below(0.0)
    if price is None or is_open or not is_certain:
        return ""
    month = price * HOURS_A_MONTH
    ends = sorted(abs(end) * month for end in present((fewer.low, fewer.high)))
    usd = " to ".join(dict.fromkeys(map(say.number, ends)))
    if len(ends) == 1:
        usd = f"at least {usd}"
    side = "less" if fewer.value > 0 else "more"
    return f"; {usd} USD a month {side} at {price:g} USD a GPU-hour"


def _due(view: View, reference: Capacity, own: Capacity) -> str:
    """Say how many replicas both arms need, and from how many agents on they need one more."""
    replicas = say.plural(own.replicas_at_peak or 0, "replica")
    need = f"{labels.arm(own.arm)} needs {replicas}{at_peak(view)}"
    need += f", {labels.arm(reference.arm)} {reference.replicas_at_peak}"
    ours, theirs = own.next_replica_at_agents, reference.next_replica_at_agents
    if ours is None or theirs is None:
        return need
    return f"{need}; the next one is due at {ours} agents instead of {theirs}"
