"""Sliding-window layers: quantising them saves hardly any memory reads, as a window is short,
and costs a little time in every step, but the same bytes hold more tokens.

An arm that skips them (`--kv-cache-dtype-skip-layers sliding_window`) is
faster, and its pool holds fewer tokens.
"""

from advisor import words
from advisor.assess.speed import between
from advisor.case import Case
from advisor.dtypes import is_fp8
from advisor.evidence import Arm, Evidence
from advisor.rules import BLOG, KERNELS
from advisor.statistics.spread import Spread
from advisor.steps import ArmsFile
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.model.window_layers"})

SKIPPING_ARM = "fp8-skip-sw"  # one that `endpoints init --arms` can write
FLAG = "--kv-cache-dtype-skip-layers sliding_window"
# The attention backend and the GPU's capability that did not take skipped layers in vLLM 0.19.1
# (vLLM blog 2026-04-22)
REFUSED_BY = ("FLASHINFER", 100)


def _pool_cost(skip: Arm, full: Arm, reference: Arm) -> str:
    if not (skip.pool_tokens and full.pool_tokens and reference.pool_tokens):
        return "a pool was not read"
    return (
        f"the pool of {skip.name} holds {skip.pool_tokens / reference.pool_tokens:.2f}x the tokens "
        f"of {reference.name}, that of {full.name} "
        f"{full.pool_tokens / reference.pool_tokens:.2f}x"
    )


def _warning(evidence: Evidence, arm: Arm) -> str:
    backend, capability = REFUSED_BY
    if evidence.deployment.gpu.sm != capability or backend not in (arm.kernel or "").upper():
        return ""
    return (
        f"; {backend} on SM{capability} did not take that flag in vLLM 0.19.1, so see first "
        "that it starts"
    )


def _directly(direct: Spread | None) -> str:
    if direct is None:
        return ""
    change = direct.relative(unit="relative", method="mean log ratio of the same turns")
    return f"turn by turn, the first differs from the second by {words.change(change)}; "


def check(case: Case) -> Finding | None:
    """Return the trade between latency and pool where both arms ran, or the missing arm."""
    evidence = case.evidence
    layers = evidence.model.window_layers
    fp8 = [arm for arm in evidence.challengers if is_fp8(arm)]
    fulls = [arm for arm in fp8 if not arm.skip_layers]
    if not layers or not fulls:
        return None
    full = fulls[0]
    skips = [arm for arm in fp8 if "sliding_window" in arm.skip_layers]
    return _trade(case, skips[0], full) if skips else _missing_arm(evidence, full, layers)


def _missing_arm(evidence: Evidence, full: Arm, layers: int) -> Finding:
    return Finding(
        kind="informs",
        arm=full.name,
        message=(
            f"{layers} layers attend to a window only; FP8 costs them time and saves them no "
            f"reads. Try an arm that skips them, such as {SKIPPING_ARM} "
            f"({FLAG}){_warning(evidence, full)}."
        ),
        next_step=ArmsFile(arm=SKIPPING_ARM),
        source=f"{BLOG}; {KERNELS}",
        leg="pays",
    )


def _trade(case: Case, skip: Arm, full: Arm) -> Finding | None:
    speed_of_skip = case.speed(skip.name, None)
    speed_of_full = case.speed(full.name, None)
    if speed_of_skip is None or speed_of_full is None:
        return None
    of_skip, of_full = speed_of_skip.change.relative, speed_of_full.change.relative
    direct = between(case.evidence, full.name, skip.name, case.shares, case.policy)
    # below zero, the arm that skips them is faster
    is_faster = direct is not None and direct.interval()[1] < 0
    cost = _pool_cost(skip, full, case.evidence.base)
    return Finding(
        kind="supports" if is_faster else "informs",
        arm=skip.name,
        message=(
            f"On {skip.name}, which skips the window layers, turn latency {words.moves(of_skip)}; "
            f"on {full.name}, which does not, it {words.moves(of_full)}; {_directly(direct)}{cost}."
        ),
        estimates=(of_skip, of_full),
        flips="a load that the KV pool limits: then full FP8's larger pool outweighs its slower "
        "steps",
        source=f"{BLOG}; {KERNELS}",
        leg="pays",
    )
