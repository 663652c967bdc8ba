"""Sliding-window layers: quantising them saves nothing to read and
costs a little every step, but keeps the pool smaller in bytes.

Skipping them (`--kv-cache-dtype-skip-layers sliding_window`)
is the faster arm; its price is pool tokens.
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

SKIPS = "fp8-skip-sw"  # arm of an arms file
FLAG = "--kv-cache-dtype-skip-layers sliding_window"
REFUSED = (
    "FLASHINFER",
    100,
    # the backend and capability that did not take skipped
    # layers in vLLM 0.19.1 (vLLM blog 2026-04-22)
)


def _pool_cost(skip: Arm, full: Arm, reference: Arm) -> str:
    if not (skip.pool_tokens and full.pool_tokens and reference.pool_tokens):
        return "a pool was not read"
    return (
        f"the pool of {skip.name} holds {skip.pool_tokens / reference.pool_tokens:.2f}x the tokens "
        f"of {reference.name}, that of {full.name} "
        f"{full.pool_tokens / reference.pool_tokens:.2f}x"
    )


def _where_refused(evidence: Evidence, arm: Arm) -> str:
    backend, capability = REFUSED
    if evidence.deployment.gpu.sm != capability or backend not in (arm.kernel or "").upper():
        return ""
    return (
        f"; {backend} on SM{capability} did not take that flag in vLLM 0.19.1, so see first "
        "that it starts"
    )


def _against(direct: Spread | None) -> str:
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
            f"reads. Try an arm that skips them, such as {SKIPS} "
            f"({FLAG}){_where_refused(evidence, full)}."
        ),
        next_step=ArmsFile(arm=SKIPS),
        source=f"{BLOG}; {KERNELS}",
        leg="pays",
    )


def _trade(case: Case, skip: Arm, full: Arm) -> Finding | None:
    mine = case.speed(skip.name, None)
    theirs = case.speed(full.name, None)
    if mine is None or theirs is None:
        return None
    of_skip, of_full = mine.change.relative, theirs.change.relative
    direct = between(case.evidence, full.name, skip.name, case.shares, case.policy)
    is_faster = direct is not None and direct.interval()[1] < 0
    cost = _pool_cost(skip, full, case.evidence.base)
    return Finding(
        kind="supports" if is_faster else "informs",
        arm=skip.name,
        message=(
            f"On {skip.name}, which skips the window layers, turn latency {words.moves(of_skip)}; "
            f"on {full.name}, which does not, it {words.moves(of_full)}; {_against(direct)}{cost}."
        ),
        estimates=(of_skip, of_full),
        flips="a load that the KV pool limits: then full FP8's larger pool outweighs its slower "
        "steps",
        source=f"{BLOG}; {KERNELS}",
        leg="pays",
    )
