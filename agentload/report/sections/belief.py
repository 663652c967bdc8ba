"""Why the figures can be believed, or not: machines, identity, pool, foreign traffic, void blocks, our own delay, physics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from advisor.dtypes import canonical
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Check, State
from agentload.report.sections.view import View

FEW_PAIRS: Final = 5
"""Below, the factor of a 95 % interval is more than half as large again as with many."""

REPEATED: Final = 1.5
"""Calls a turn from which a trace is short for its pairs; a play more of some of its blocks is none."""


def belief(view: View) -> tuple[Check, ...]:
    """List what speaks for and against the figures; what was not observed is said too."""
    return tuple(
        check
        for make in (_machines, _noise_floor, _dtype, _kernel, _identity, _pool, _foreign, _pairs, _void, _lag, _gates, _budget)
        for check in make(view)
    )


def _machines(view: View) -> Iterable[Check]:
    deployment = view.evidence.deployment
    if len(deployment.machines) > 1:
        swapped = deployment.swapped
        yield Check(
            state="ok" if swapped else "bad",
            text="arms swapped between the machines"
            if swapped
            else "each arm stayed on its own machine: a difference may be the machine's",
        )
    elif deployment.machines:
        yield Check(state="ok", text="all arms on one machine")


def _noise_floor(view: View) -> Iterable[Check]:
    floors = {each.workload: each.floor for each in view.decision.changes if each.metric == "turn_ms" and each.floor is not None}
    if floors:
        of_mix = floors.pop(None, None) or max(floors.values())
        state: State = "ok" if of_mix <= view.policy.min_change else "unknown"
        across = " across machines" if any(control.across_machines for control in view.evidence.aa) else ""
        others = {name: told for name, floor in floors.items() if name and (told := _percents(floor)) != _percents(of_mix)}
        classes = ", ".join(f"{name} {told}" for name, told in others.items())
        yield Check(state=state, text=f"A/A noise floor{across} ±{_percents(of_mix)} of turn time{f' ({classes})' if classes else ''}")
    else:
        yield Check(state="unknown", text="no A/A control run: the noise floor is not known")


def _percents(share: float) -> str:
    return f"{say.number(100 * share, 1)} %"


def _dtype(view: View) -> Iterable[Check]:
    arms = view.evidence.arms
    unread = [labels.arm(arm.name) for arm in arms if arm.observed_dtype is None]
    other = [
        f"{labels.arm(arm.name)} ({arm.observed_dtype} for {arm.expected_dtype})"
        for arm in arms
        if arm.observed_dtype and arm.expected_dtype and not _fits(arm.expected_dtype, arm.observed_dtype)
    ]
    if other:
        yield Check(state="bad", text=f"KV dtype is not what was asked: {', '.join(other)}")
    elif unread:
        yield Check(state="unknown", text=f"KV dtype not read from {', '.join(unread)}")
    else:
        yield Check(state="ok", text="KV dtype and skip list read from each server")


def _fits(expected: str, observed: str) -> bool:
    # `auto` follows the checkpoint: any answer fits it.
    return expected == "auto" or canonical(expected) == canonical(observed)


def _kernel(view: View) -> Iterable[Check]:
    kernels = {labels.arm(arm.name): arm.kernel for arm in view.evidence.arms}
    if None in kernels.values():
        yield Check(state="unknown", text="attention kernel not read from every server")
    elif len(set(kernels.values())) == 1:
        yield Check(state="ok", text=f"same attention kernel in all arms ({next(iter(kernels.values()))})")
    else:
        yield Check(state="bad", text=f"attention kernel differs: {', '.join(f'{arm} {kernel}' for arm, kernel in kernels.items())}")


def _identity(view: View) -> Iterable[Check]:
    changed = [labels.arm(each.arm) for each in view.facts.made.servers if each.steady is False]
    if changed:
        yield Check(state="bad", text=f"identity changed during the run: {', '.join(changed)}")
    elif opaque := [labels.arm(each.arm) for each in view.facts.made.servers if each.is_opaque]:
        yield Check(state="bad", text=f"identity not verified: {', '.join(opaque)} told neither version, KV dtype nor kernel")
    elif view.facts.made.servers and all(each.steady for each in view.facts.made.servers):
        yield Check(state="ok", text="same identity before and after on every server")


def _pool(view: View) -> Iterable[Check]:
    seen = [(labels.arm(arm), figures) for arm in view.arms if (figures := view.evidence.telemetry(None, arm)) is not None]
    watched = [(arm, each.pool_filled_share, each.minutes) for arm, each in seen if each.pool_filled_share is not None and each.minutes]
    filled = [f"{arm} {say.minutes(share * length)} of {say.minutes(length)}" for arm, share, length in watched if share]
    searched = {labels.arm(each.arm) for each in view.decision.capacity if each.agents_per_gpu is not None}
    never = [arm for arm, share, _ in watched if not share and arm not in searched]
    if filled:
        yield Check(state="ok", text=f"KV pool full: {', '.join(filled)}")
    if never:
        yield Check(state="unknown", text=f"KV pool never filled on {', '.join(never)}: nothing follows there for capacity")


def _foreign(view: View) -> Iterable[Check]:
    counts = [each.foreign_requests for each in view.evidence.health if each.foreign_requests is not None]
    if counts:
        total = sum(counts)
        yield Check(state="bad" if total else "ok", text=f"{say.plural(total, 'foreign request')} on the servers")


def _pairs(view: View) -> Iterable[Check]:
    changes = [each for each in view.decision.changes if each.workload is None and each.metric == "turn_ms"]
    if changes:
        fewest = min(changes, key=lambda each: each.pairs)
        distinct, calls = _distinct(view)
        pairs = f"{say.plural(fewest.pairs, 'block pair')}, {say.plural(fewest.calls, 'call')} on the same bytes in each arm"
        again = ""
        if calls > REPEATED * distinct:
            again = f": {say.plural(distinct, 'distinct turn')}, each {round(calls / distinct, 1):g} times; the intervals are about these"
            again += " turns, and a longer trace tells of more"
        yield Check(state="ok" if fewest.pairs >= FEW_PAIRS and not again else "unknown", text=pairs + again)


def _distinct(view: View) -> tuple[int, int]:
    """Return how many turns of the trace the reference was sent, and how many calls that made."""
    sent = view.calls(view.evidence.reference)
    turns = [np.unique(np.stack([calls.session, calls.turn]), axis=1).shape[1] for calls in sent]
    return sum(turns), sum(len(calls) for calls in sent)


def _void(view: View) -> Iterable[Check]:
    counted = [(each.void_blocks, each.blocks) for each in view.evidence.health if each.void_blocks is not None and each.blocks]
    void, blocks = sum(each[0] or 0 for each in counted), sum(each[1] or 0 for each in counted)
    if blocks:
        yield Check(state="ok" if void <= blocks / 10 else "bad", text=f"{void} of {say.plural(blocks, 'block')} void")


def _lag(view: View) -> Iterable[Check]:
    lags = [each.send_lag_p99_ms for each in view.evidence.health if each.send_lag_p99_ms is not None]
    sources = {each.stamp_source for each in view.evidence.health if each.stamp_source is not None}
    if lags:
        stamps = (
            f", stamps by the {' and '.join(sorted({'kernel': 'kernel', 'user': 'program'}[name] for name in sources))}" if sources else ""
        )
        late = max(lags) > view.policy.max_send_lag_ms
        yield Check(state="bad" if late else "ok", text=f"timing lag p99 {say.duration(max(lags))}{stamps}")


def _gates(view: View) -> Iterable[Check]:
    gates = view.decision.gates
    failed = [gate for gate in gates if gate.status == "fail"]
    passed = sum(gate.status == "pass" for gate in gates)
    for name in dict.fromkeys(gate.name for gate in failed):
        first, *others = (gate for gate in failed if gate.name == name)
        more = f"; {say.plural(len(others), 'more time')}" if others else ""
        yield Check(state="bad", text=f"failed gate: {name} on {labels.where(first) or 'all arms'}, {view.told(first.message)}{more}")
    if gates and not failed:
        yield Check(state="ok" if passed else "unknown", text=f"{passed} of {len(gates)} physics and health gates passed, none failed")
    unseen = {gate.name for gate in gates} - {gate.name for gate in gates if gate.status != "not observed"}
    if unseen:
        yield Check(state="unknown", text=f"not observed: {', '.join(sorted(name.replace('_', ' ') for name in unseen))}")


def _budget(view: View) -> Iterable[Check]:
    made = view.facts.made
    if made.minutes:
        time = {"measured": "of measurement", "emulated": "against stand-ins", "simulated": "of virtual time"}[view.decision.kind]
        yield Check(state="ok", text=f"{say.minutes(made.minutes)} {time}")
