"""Say how far the figures can be trusted.

By machines, identity, pool, invalid blocks, our own delay, physics.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from advisor.dtypes import canonical
from advisor.estimate import present
from advisor.verdict import Gate
from agentload.report import format as say
from agentload.report import labels
from agentload.report.lookup import by_key
from agentload.report.parts import Check, assurance, doubt, objection
from agentload.report.sections.certainty import surely
from agentload.report.sections.view import View

FEW_PAIRS: Final = 5
"""Below, the factor of a 95% interval is more than half as large again as with many."""

REPEATED: Final = 1.5
"""Calls for each distinct turn, above which turns count as repeated; a few blocks that were played
once more do not.
"""

_TIME: Final = {
    "measured": "of measurement",
    "emulated": "against emulated servers",
    "simulated": "of virtual time",
}
_STAMPS: Final = {"kernel": "kernel", "user": "program"}
_READERS: Final = {"thread": "a thread of its own", "interpreter": "the interpreter"}


def belief(view: View) -> tuple[Check, ...]:
    """List what speaks for and against the figures, and what was not observed."""
    makers = (
        _gates,
        _machines,
        _dtype,
        _kernel,
        _identity,
        _pairs,
        _runs,
        _noise_floor,
        _starts,
        _invalid_blocks,
        _lag,
        _pool,
        _budget,
    )
    return tuple(check for make in makers for check in make(view))


def _machines(view: View) -> Iterator[Check]:
    deployment = view.evidence.deployment
    if len(deployment.machines) == 1:
        yield assurance("all arms on one machine")
    elif deployment.machines and deployment.swapped:
        yield assurance("the arms changed machines half way")
    elif deployment.machines:
        text = "each arm stayed on its own machine, so a difference may be the machine's"
        yield objection(text, "open")


def _runs(view: View) -> Iterator[Check]:
    if view.compares_runs:
        text = "there is one run each, so a restart or a noisy neighbour could explain a difference"
        yield doubt(text, "likely")


def _noise_floor(view: View) -> Iterator[Check]:
    floors = {}
    for each in view.decision.changes:
        if each.metric == "turn_ms" and each.floor is not None:
            floors[each.workload] = each.floor
    if not floors:
        if view.decision.kind == "simulated":
            return  # how far equal servers differ there is what the profile says
        yield doubt("there was no A/A control, so the noise floor is unknown", "likely")
        return
    of_mix = floors.pop(None, None) or max(floors.values())
    least = view.policy.min_change
    text = f"two identical servers may differ by up to {say.tenths(of_mix)} in turn latency"
    text += f" ({_control(view, of_mix, floors)})"
    if of_mix <= least:
        yield assurance(text)
    else:
        yield doubt(text, "likely" if _is_beyond(view, of_mix) else "open")


def _control(view: View, of_mix: float, floors: Mapping[str | None, float]) -> str:
    """Name the control behind the noise, and the classes in which it showed something else."""
    others = {name: say.tenths(floor) for name, floor in floors.items() if name}
    whole = say.tenths(of_mix)
    classes = ", ".join(f"{name} {text}" for name, text in others.items() if text != whole)
    has_machines = any(control.across_machines for control in view.evidence.aa)
    across = " across machines" if has_machines else ""
    return say.join((f"A/A control{across}", classes), "; ")


def _is_beyond(view: View, floor: float) -> bool:
    """Tell whether the change of the arm in focus is surely larger than the noise."""
    change = view.change("turn_ms", view.focus, None)
    if change is None:
        return False
    nearest = surely(change.relative)
    return nearest is not None and abs(nearest) > floor


def _starts(view: View) -> Iterator[Check]:
    """Yield a doubt where some arm was started only once, by its class with most calls."""
    if view.decision.kind == "simulated" or view.compares_runs:
        return
    for calls in map(view.calls, view.arms):
        if calls and np.unique(max(calls, key=len).restart).size == 1:
            yield doubt("each server was started once", "likely")
            return


def _dtype(view: View) -> Iterator[Check]:
    unread = []
    wrong = []
    for arm in view.evidence.arms:
        name = labels.arm(arm.name)
        if arm.observed_dtype is None:
            unread.append(name)
        elif not _fits(arm.expected_dtype, arm.observed_dtype):
            wrong.append(f"{name} ({arm.observed_dtype} for {arm.expected_dtype})")
    if wrong:
        yield objection(f"the KV dtype is not what was asked for: {', '.join(wrong)}", "open")
    elif unread:
        yield doubt(f"the KV dtype could not be read from {', '.join(unread)}", "likely")
    else:
        yield assurance("KV dtype and skip list read from each server")


def _fits(expected: str | None, observed: str) -> bool:
    """Tell whether a server has the dtype that was asked for, under whichever name."""
    # `auto` follows the checkpoint: any answer fits it.
    if not expected or not observed or expected == "auto":
        return True
    return canonical(expected) == canonical(observed)


def _kernel(view: View) -> Iterator[Check]:
    arms = view.evidence.arms
    kernels = present(arm.kernel for arm in arms)
    if len(kernels) < len(arms):
        yield doubt("the attention kernel could not be read from every server")
    elif len(set(kernels)) == 1:
        yield assurance(f"same attention kernel in all arms ({kernels[0]})")
    else:
        seen = ", ".join(f"{labels.arm(arm.name)} {arm.kernel}" for arm in arms)
        yield objection(f"the attention kernel differs: {seen}", "likely")


def _identity(view: View) -> Iterator[Check]:
    servers = view.facts.made.servers
    changed = [labels.arm(each.arm) for each in servers if each.steady is False]
    opaque = [labels.arm(each.arm) for each in servers if each.is_opaque]
    if changed:
        yield objection(f"the server changed during the run: {', '.join(changed)}", "open")
    elif opaque:
        names = ", ".join(opaque)
        text = f"identity not verified: {names} reported neither version, KV dtype nor kernel"
        yield objection(text, "likely")
    elif servers and all(each.steady for each in servers):
        yield assurance("same server identity before and after on every arm")


def _pool(view: View) -> Iterator[Check]:
    searched = {each.arm for each in view.decision.capacity if each.agents_per_gpu is not None}
    filled, never = [], []
    for arm in view.arms:
        seen = view.evidence.telemetry(None, arm)
        if seen is None or seen.pool_filled_share is None or not seen.minutes:
            continue
        if seen.pool_filled_share:
            full = say.minutes(seen.pool_filled_share * seen.minutes)
            filled.append(f"{labels.arm(arm)} {full} of {say.minutes(seen.minutes)}")
        elif arm not in searched:
            never.append(labels.arm(arm))
    if filled:
        yield assurance(f"KV pool full: {', '.join(filled)}")
    if never:
        names = ", ".join(never)
        yield doubt(f"the KV pool never filled on {names}, so capacity cannot be judged")


def _pairs(view: View) -> Iterator[Check]:
    changes = present(view.changes("turn_ms", None))
    if not changes:
        return
    fewest = min(changes, key=lambda each: each.pairs)
    played = say.plural(fewest.pairs, "block pair")
    pairs = f"{played} and {say.plural(fewest.calls, 'call')} per arm"
    distinct, calls = _turns_and_calls(view)
    if calls > REPEATED * distinct:
        times = f"each played {round(calls / distinct, 1):g} times"
        again = f"only {say.plural(distinct, 'distinct turn')}{_of_trace(view, calls, times)}"
        yield doubt(f"{pairs}, {again}", "likely")
    elif fewest.pairs < FEW_PAIRS:
        yield doubt(f"only {pairs}", "likely")
    else:
        yield assurance(pairs)


def _of_trace(view: View, calls: int, times: str) -> str:
    """Say how often turns were played, and whether the trace is too short.

    A trace with enough turns was played in part only.
    """
    turns = next((each.calls for each in view.decision.coverage if each.workload is None), 0)
    if turns < calls:
        return f", {times} (a longer trace helps)"
    return f" of {turns:,} in the trace, {times}"


def _turns_and_calls(view: View) -> tuple[int, int]:
    """Return how many turns of the trace the reference was sent, and in how many calls."""
    sent = view.calls(view.reference)
    turns = []
    for calls in sent:
        names = np.stack([calls.session, calls.turn])
        turns.append(np.unique(names, axis=1).shape[1])
    return sum(turns), sum(map(len, sent))


def _invalid_blocks(view: View) -> Iterator[Check]:
    invalid = 0
    blocks = 0
    for each in view.evidence.health:
        if each.void_blocks is not None and each.blocks:
            invalid += each.void_blocks
            blocks += each.blocks
    if blocks:
        text = f"{invalid} of {say.plural(blocks, 'block')} invalid"
        yield objection(text, "likely") if invalid > blocks / 10 else assurance(text)


def _lag(view: View) -> Iterator[Check]:
    health = view.evidence.health
    lags = present(each.send_lag_p99_ms for each in health)
    if not lags:
        return
    sources = {_STAMPS[each.stamp_source] for each in health if each.stamp_source}
    readers = {_READERS[each.read_path] for each in health if each.read_path}
    how = {
        "p99": True,
        f"by {' and '.join(sorted(sources))} timestamps": sources,
        f"read by {' and '.join(sorted(readers))}": readers,
    }
    text = f"requests left at most {say.duration(max(lags))} late ({say.join_if(how)})"
    is_late = max(lags) > view.policy.max_send_lag_ms
    yield Check(state="bad", text=text) if is_late else assurance(text)


def _gates(view: View) -> Iterator[Check]:
    gates = view.decision.gates
    failed = by_key((gate.name, gate) for gate in gates if gate.status == "fail")
    for same in failed.values():
        yield _failed_check(view, same)
    if gates and not failed:
        passed = sum(gate.status == "pass" for gate in gates)
        text = f"{passed} of {len(gates)} validity checks passed, none failed"
        yield assurance(text) if passed else doubt(text)


def _failed_check(view: View, same: Sequence[Gate]) -> Check:
    """Say once that a validity check failed, where it did so first and how often it did again."""
    first, *others = same
    where = labels.where(first) or "all arms"
    text = f"failed validity check on {where}: {view.typeset(first.message)}"
    if others:
        text += f" (and {say.plural(len(others), 'more time')})"
    # A check that spoils nothing, as a drift that pairs cancel, leaves all as well known.
    return objection(text, "open" if any(each.spoils for each in same) else "likely")


def _budget(view: View) -> Iterator[Check]:
    kind, minutes = view.decision.kind, view.facts.made.minutes
    if minutes:
        yield assurance(f"{say.minutes(minutes)} {_TIME[kind]}")
    if kind != "measured":
        yield doubt("none of your own servers was measured")
