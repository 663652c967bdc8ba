"""How far the figures can be trusted: machines, identity,
pool, foreign traffic, invalid blocks, our own delay, physics.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from advisor.dtypes import canonical
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Check, Confidence, Trust
from agentload.report.sections.view import View

FEW_PAIRS: Final = 5
"""Below, the factor of a 95 % interval is more than half as large again as with many."""

REPEATED: Final = 1.5
"""Calls a turn from which a trace is short for its
pairs; a play more of some of its blocks is none.
"""

REASONS: Final = 2
"""As many as are given for a lack of confidence: the gravest."""
_LEVELS: Final[tuple[Trust, ...]] = ("low", "medium")


def confidence(checks: Sequence[Check]) -> Confidence:
    """Say how far the decision can be trusted: as far as the gravest open check lets it."""
    capped = sorted(
        (each for each in checks if each.caps is not None),
        key=lambda each: _LEVELS.index(each.caps or "low"),
    )
    return Confidence(
        level=capped[0].caps or "high" if capped else "high",
        reasons=tuple(each.text for each in capped[:REASONS]),
    )


def belief(view: View) -> tuple[Check, ...]:
    """List what speaks for and against the figures; what was not observed is said too."""
    makers = (
        _gates,
        _machines,
        _dtype,
        _kernel,
        _identity,
        _foreign,
        _pairs,
        _runs,
        _noise_floor,
        _starts,
        _void,
        _lag,
        _pool,
        _budget,
    )
    return tuple(check for make in makers for check in make(view))


def _machines(view: View) -> Iterable[Check]:
    deployment = view.evidence.deployment
    if len(deployment.machines) > 1 and deployment.swapped:
        yield Check(state="ok", text="the arms changed machines half way")
    elif len(deployment.machines) > 1:
        yield Check(
            state="bad",
            text="each arm stayed on its own machine, so a difference may be the machine's",
            caps="low",
        )
    elif deployment.machines:
        yield Check(state="ok", text="all arms on one machine")


def _runs(view: View) -> Iterable[Check]:
    if view.facts.made.compared_with is not None:
        yield Check(
            state="unknown",
            text="there is one run each, so a restart or a noisy neighbour could explain a "
            "difference",
            caps="medium",
        )


def _noise_floor(view: View) -> Iterable[Check]:
    floors = {
        each.workload: each.floor
        for each in view.decision.changes
        if each.metric == "turn_ms" and each.floor is not None
    }
    if not floors:
        yield Check(
            state="unknown",
            text="there was no A/A control, so the noise floor is unknown",
            caps="medium",
        )
        return
    of_mix, least = floors.pop(None, None) or max(floors.values()), view.policy.min_change
    across = (
        " across machines" if any(control.across_machines for control in view.evidence.aa) else ""
    )
    others = {
        name: text
        for name, floor in floors.items()
        if name and (text := _percents(floor)) != _percents(of_mix)
    }
    classes = ", ".join(f"{name} {text}" for name, text in others.items())
    control = f"A/A control{across}{f'; {classes}' if classes else ''}"
    told = (
        f"two identical servers may differ by up to {_percents(of_mix)} in turn latency ({control})"
    )
    wide: Trust = "low" if of_mix > 2 * least else "medium"
    yield (
        Check(state="ok", text=told)
        if of_mix <= least
        else Check(state="unknown", text=told, caps=wide)
    )


def _starts(view: View) -> Iterable[Check]:
    starts = [
        np.unique(max(calls, key=len).restart).size
        for arm in view.arms
        if (calls := view.calls(arm))
    ]
    if (
        starts
        and min(starts) == 1
        and view.decision.kind != "simulated"
        and view.facts.made.compared_with is None
    ):
        yield Check(state="unknown", text="each server was started once", caps="medium")


def _percents(share: float) -> str:
    return f"{say.number(100 * share, 1)}%"


def _dtype(view: View) -> Iterable[Check]:
    arms = view.evidence.arms
    unread = [labels.arm(arm.name) for arm in arms if arm.observed_dtype is None]
    other = [
        f"{labels.arm(arm.name)} ({arm.observed_dtype} for {arm.expected_dtype})"
        for arm in arms
        if arm.observed_dtype
        and arm.expected_dtype
        and not _fits(arm.expected_dtype, arm.observed_dtype)
    ]
    if other:
        yield Check(
            state="bad",
            text=f"the KV dtype is not what was asked for: {', '.join(other)}",
            caps="low",
        )
    elif unread:
        yield Check(
            state="unknown",
            text=f"the KV dtype could not be read from {', '.join(unread)}",
            caps="medium",
        )
    else:
        yield Check(state="ok", text="KV dtype and skip list read from each server")


def _fits(expected: str, observed: str) -> bool:
    # `auto` follows the checkpoint: any answer fits it.
    return expected == "auto" or canonical(expected) == canonical(observed)


def _kernel(view: View) -> Iterable[Check]:
    kernels = {
        labels.arm(arm.name): arm.kernel for arm in view.evidence.arms if arm.kernel is not None
    }
    if len(kernels) < len(view.evidence.arms):
        yield Check(
            state="unknown", text="the attention kernel could not be read from every server"
        )
    elif len(set(kernels.values())) == 1:
        yield Check(
            state="ok", text=f"same attention kernel in all arms ({next(iter(kernels.values()))})"
        )
    else:
        yield Check(
            state="bad",
            text=f"the attention kernel differs: {', '.join(map(' '.join, kernels.items()))}",
            caps="medium",
        )


def _identity(view: View) -> Iterable[Check]:
    changed = [labels.arm(each.arm) for each in view.facts.made.servers if each.steady is False]
    if changed:
        yield Check(
            state="bad", text=f"the server changed during the run: {', '.join(changed)}", caps="low"
        )
    elif opaque := [labels.arm(each.arm) for each in view.facts.made.servers if each.is_opaque]:
        yield Check(
            state="bad",
            text=f"identity not verified: {', '.join(opaque)} reported neither version, KV dtype "
            "nor kernel",
            caps="medium",
        )
    elif view.facts.made.servers and all(each.steady for each in view.facts.made.servers):
        yield Check(state="ok", text="same server identity before and after on every arm")


def _pool(view: View) -> Iterable[Check]:
    seen = [
        (labels.arm(arm), figures)
        for arm in view.arms
        if (figures := view.evidence.telemetry(None, arm)) is not None
    ]
    watched = [
        (arm, each.pool_filled_share, each.minutes)
        for arm, each in seen
        if each.pool_filled_share is not None and each.minutes
    ]
    filled = [
        f"{arm} {say.minutes(share * length)} of {say.minutes(length)}"
        for arm, share, length in watched
        if share
    ]
    searched = {
        labels.arm(each.arm) for each in view.decision.capacity if each.agents_per_gpu is not None
    }
    never = [arm for arm, share, _ in watched if not share and arm not in searched]
    if filled:
        yield Check(state="ok", text=f"KV pool full: {', '.join(filled)}")
    if never:
        yield Check(
            state="unknown",
            text=f"the KV pool never filled on {', '.join(never)}, so capacity cannot be judged",
        )


def _foreign(view: View) -> Iterable[Check]:
    counts = [
        each.foreign_requests for each in view.evidence.health if each.foreign_requests is not None
    ]
    if counts:
        total = sum(counts)
        text = f"{say.plural(total, 'request')} from other clients on the servers"
        yield Check(state="bad" if total else "ok", text=text, caps="low" if total else None)


def _pairs(view: View) -> Iterable[Check]:
    changes = [
        each for each in view.decision.changes if each.workload is None and each.metric == "turn_ms"
    ]
    if changes:
        fewest = min(changes, key=lambda each: each.pairs)
        distinct, calls = _distinct(view)
        pairs = (
            f"{say.plural(fewest.pairs, 'block pair')} and {say.plural(fewest.calls, 'call')} "
            "per arm"
        )
        if calls > REPEATED * distinct:
            times = f"each played {round(calls / distinct, 1):g} times"
            again = f"only {say.plural(distinct, 'distinct turn')}{_of_trace(view, calls, times)}"
            yield Check(
                state="unknown",
                text=f"{pairs}, {again}",
                caps="low" if fewest.pairs < FEW_PAIRS else "medium",
            )
        elif fewest.pairs < FEW_PAIRS:
            yield Check(state="unknown", text=f"only {pairs}", caps="low")
        else:
            yield Check(state="ok", text=pairs)


def _of_trace(view: View, calls: int, times: str) -> str:
    """Say how often turns were played, and whether that is the
    trace's fault: one with turns enough was played in part.
    """
    turns = next((each.calls for each in view.decision.coverage if each.workload is None), 0)
    return (
        f", {times} (a longer trace helps)"
        if turns < calls
        else f" of {turns:,} in the trace, {times}"
    )


def _distinct(view: View) -> tuple[int, int]:
    """Return how many turns of the trace the reference was sent, and how many calls that made."""
    sent = view.calls(view.evidence.reference)
    turns = [np.unique(np.stack([calls.session, calls.turn]), axis=1).shape[1] for calls in sent]
    return sum(turns), sum(len(calls) for calls in sent)


def _void(view: View) -> Iterable[Check]:
    counted = [
        (each.void_blocks, each.blocks)
        for each in view.evidence.health
        if each.void_blocks is not None and each.blocks
    ]
    void, blocks = sum(each[0] or 0 for each in counted), sum(each[1] or 0 for each in counted)
    if blocks:
        many = void > blocks / 10
        text = f"{void} of {say.plural(blocks, 'block')} invalid"
        yield Check(state="bad" if many else "ok", text=text, caps="low" if many else None)


def _lag(view: View) -> Iterable[Check]:
    lags = [
        each.send_lag_p99_ms for each in view.evidence.health if each.send_lag_p99_ms is not None
    ]
    sources = {each.stamp_source for each in view.evidence.health if each.stamp_source is not None}
    if lags:
        stamps = (
            (
                ", by "
                f"{' and '.join(sorted({'kernel': 'kernel', 'user': 'program'}[name] for name in sources))} "
                "timestamps"
            )
            if sources
            else ""
        )
        late = max(lags) > view.policy.max_send_lag_ms
        yield Check(
            state="bad" if late else "ok",
            text=f"requests left at most {say.duration(max(lags))} late (p99{stamps})",
        )


def _gates(view: View) -> Iterable[Check]:
    gates = view.decision.gates
    failed = [gate for gate in gates if gate.status == "fail"]
    passed = sum(gate.status == "pass" for gate in gates)
    for name in dict.fromkeys(gate.name for gate in failed):
        first, *others = (gate for gate in failed if gate.name == name)
        more = f" (and {say.plural(len(others), 'more time')})" if others else ""
        text = (
            f"failed validity check on {labels.where(first) or 'all arms'}: "
            f"{view.typeset(first.message)}{more}"
        )
        yield Check(state="bad", text=text, caps="low")
    if gates and not failed:
        yield Check(
            state="ok" if passed else "unknown",
            text=f"{passed} of {len(gates)} validity checks passed, none failed",
        )


def _budget(view: View) -> Iterable[Check]:
    made = view.facts.made
    if made.minutes:
        time = {
            "measured": "of measurement",
            "emulated": "against emulated servers",
            "simulated": "of virtual time",
        }[view.decision.kind]
        yield Check(state="ok", text=f"{say.minutes(made.minutes)} {time}")
    if view.decision.kind != "measured":
        yield Check(state="unknown", text="none of your own servers was measured", caps="low")
