"""Show which part of the user's trace was played, under which load.

Two lines on the first screen, and a table of the quantiles of both.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from advisor import words
from advisor.estimate import present
from advisor.loads import PairLoad, TwinChange
from advisor.verdict import Coverage, Quantity
from agentload.evidence.gather import pair_load
from agentload.report import format as say
from agentload.report import labels
from agentload.report.lookup import first
from agentload.report.parts import Cell, Group, group, table
from agentload.report.sections.view import View
from agentload.study.kinds import Replay

COLUMNS: Final = ("", "10%", "50%", "90%", "99%", "largest")
NOTE: Final = (
    "Each call weighs the same. A call is covered where its context is at most a tenth "
    "longer than the longest that was timed: in three "
    "block pairs, or as often as the trace has it. What the server reported is compared "
    "with what an ideal cache would hold."
)
ALIKE: Final = 1.1
"""Loads are the same where sessions over hours are less than this many times a window's."""
_SAID: Final[dict[Quantity, tuple[str, Callable[[float], str]]]] = {
    "context_tokens": ("context, tokens", say.tokens),
    "new_tokens": ("new tokens a turn", say.tokens),
    "output_tokens": ("output, tokens", say.tokens),
    "wait_s": ("wait before a turn", lambda seconds: say.duration(1_000 * seconds)),
    "hit_rate": ("cache hit rate", say.percent),
}


def line(view: View) -> str:
    """Say which share of the calls was covered, and up to which context.

    Empty where the run does not know its trace.
    """
    whole = first(view.decision.coverage, workload=None)
    if whole is None:
        return ""
    if whole.timed_to is None:
        return f"none of your {say.plural(whole.calls, 'call')}: none was timed"
    covered = f"{_share(whole.call_share)} of your calls"
    if whole.call_share != 1:
        covered += f" and {_share(whole.token_share)} of their tokens"
    parts = [f"{covered}, contexts {_reach(view, whole)}"]
    study = view.facts.study
    if isinstance(study, Replay) and study.load.max_context_tokens is not None:
        end = words.length(study.load.max_context_tokens)
        parts.append(f"sessions end before {end} (--max-context)")
    missed = present(each.workload for each in view.decision.coverage if not each.played)
    if missed:
        parts.append(f"{say.enumeration(missed)} not played")
    if not whole.is_whole:
        calls = say.plural(whole.calls, "call")
        parts.append(f"measured by the first {calls} of a longer trace")
    return "; ".join(parts)


def _reach(view: View, whole: Coverage) -> str:
    """Say up to which context calls were covered: class by class where classes end elsewhere."""
    cut = [each for each in view.decision.coverage if each.workload and each.call_share < 1]
    told = (f"of {each.workload} {_upto(each)}" for each in cut if each.timed_to is not None)
    return say.join(told, ", ") or _upto(whole)


def _upto(covered: Coverage) -> str:
    assert covered.timed_to is not None
    end = f"to {words.length(covered.timed_to)}"
    if covered.call_share == 1:
        return end
    return f"{end} of {words.length(covered.longest)}"


def load(view: View) -> str:
    """Name the load of the latency changes and their calls, and the load of the agents per GPU.

    Empty where no change was measured, or the run does not say under which load.
    """
    played = view.decision.pair_load or _load_of_whole_sessions(view)
    if played is None or not view.decision.changes:
        return ""
    parts = [f"block pairs have {_at_once(played)}, {_waiting(played)}{_calls(view)}"]
    overfull = {arm for each in view.decision.changes for arm in each.overfull}
    if overfull:
        arms = say.enumeration([labels.arm(arm) for arm in view.arms if arm in overfull])
        contexts = "their contexts"
        if played.held_tokens is not None:
            contexts += f" ({say.tokens(played.held_tokens)} tokens)"
        parts.append(f"the KV pool of {arms} does not hold {contexts}, so changes are bounds")
    if view.has_agents_per_gpu and played.cuts_waits:
        parts.append("agents per GPU are of users who wait as in your trace")
    parts += dict.fromkeys(_on_twins(view, each) for each in view.decision.twin_changes)
    return "; ".join(parts)


def _load_of_whole_sessions(view: View) -> PairLoad | None:
    """Return the load of a replay whose pairs have no load of their own.

    None where the run is no replay, or where a benchmark's rules say how long users wait.
    """
    study = view.facts.study
    if not isinstance(study, Replay) or study.benchmark is not None:
        return None
    return replace(pair_load(study.load), sessions=study.capacity or study.load.sessions)


def _calls(view: View) -> str:
    """Say of how many calls the changes of turn latency of whole servers are, at the least."""
    calls = [each.calls for each in present(view.changes("turn_ms", None))]
    return f", {say.plural(min(calls), 'call')} per arm" if calls else ""


def _on_twins(view: View, each: TwinChange) -> str:
    """Name the load that twins were played under: the user's peak, or the pairs' for hours."""
    if not each.is_own:
        return f"{say.plural(each.agents, 'session')} for hours (twins)"
    load = f"turn latency at your peak is of {say.plural(each.agents, 'agent')} a replica"
    deployed = view.evidence.deployment
    carried = view.capacity(view.reference)
    if deployed.peak_agents is None or carried is None or carried.replicas_at_peak is None:
        return f"{load} (twins)"
    # Twins size the replicas before trials do.
    busy = carried.replicas_at_peak - deployed.spare_replicas
    by_trials = math.ceil(deployed.peak_agents / max(1, busy))
    load += f", by {view.against}'s twin"
    return load if by_trials == each.agents else f"{load}, where trials say {by_trials}"


def _at_once(played: PairLoad) -> str:
    if played.sessions is not None:
        at_once = f"{say.plural(played.sessions, 'session')} at once"
        over_hours = round(played.sessions_of_hours or 0)
        if over_hours < ALIKE * played.sessions:
            return at_once
        return (
            f"{at_once}, which work as often as {over_hours} do over hours (a window skips "
            "long waits)"
        )
    if played.rate_per_s is not None:
        return f"{played.rate_per_s:g} session starts a second"
    return f"sessions that begin {_times(played.speed, 'fast')}as in your trace"


def _waiting(played: PairLoad) -> str:
    if played.user_wait_s is not None:
        return f"users answer within {say.duration(1_000 * played.user_wait_s)}"
    return f"users wait {_times(played.user_wait_scale, 'long')}as in your trace"


def _times(factor: float, kind: str) -> str:
    if factor == 1:
        return ""
    return f"{factor:g} times as {kind} "


def _share(share: float) -> str:
    """Write a share, rounded down; only 1 is written as all."""
    if share == 1:
        return "all"
    if share >= 0.01 or share == 0:
        return f"{int(100 * share)}%"
    return "less than 1%"


def coverage(view: View) -> Group | None:
    """Show what was played next to the trace, whole and by class where there are several."""
    tables = (
        table(_title(each), COLUMNS, _rows(each), _counts(each)) for each in view.decision.coverage
    )
    return group("Coverage: what was played of your trace", tables=tables, note=NOTE)


def _title(each: Coverage) -> str:
    return f"Coverage of {each.workload or 'the whole trace'}"


def _counts(each: Coverage) -> str:
    """Say how many calls were played, and which share of the trace they cover."""
    played = f"{say.plural(each.played, 'call')} of the reference"
    calls = f"{played}, {say.plural(each.calls, 'call')} in the trace"
    share = f"{_share(each.call_share)} of its calls"
    return f"{calls}; {share} and {_share(each.token_share)} of their tokens are covered."


def _rows(each: Coverage) -> Iterator[Sequence[Cell | str]]:
    for found in each.quantiles:
        name, said = _SAID[found.quantity]
        for side, values in (("trace", found.trace), ("played", found.played)):
            cells = [said(value) for value in values] or [say.ABSENT] * (len(COLUMNS) - 1)
            yield (f"{name}, {side}", *cells)
