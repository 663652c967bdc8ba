"""Columns of observations: numpy arrays of equal length in a frozen shell."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calls:
    """Hold the turns of one workload on one arm as equally long columns: one row a turn (its last attempt).

    The drain tail is there: its latencies are paired like any other's, only throughput has to leave it out. Void blocks are left out.
    (pair, session, turn) names the same bytes on every arm. A float is NaN where a row lacks it.
    """

    restart: Ints  # which start of the servers; the top level of the bootstrap
    pair: Ints  # block pair; the same number on two arms is the two halves of one pair
    block: Ints  # position of the block in time, over all arms
    session: Ints  # of the trace: the same number in two pairs is the same session, played again
    turn: Ints
    start_s: Floats  # release, seconds after the run's start
    ok: Bools  # ended cleanly; False also for a turn that was never sent
    ttft_ms: Floats
    tpot_ms: Floats  # mean token latency of the call, without the first token
    turn_ms: Floats  # from due (open loop) or released (closed loop) to the last byte
    prompt_tokens: Floats
    output_tokens: Floats
    computed_tokens: Floats | None = None  # prompt minus cached
    asked_tokens: Floats | None = None  # output tokens that the trace asked for
    batch_kv_tokens: Floats | None = None  # mean KV tokens of the whole batch while this call decoded
    lag_ms: Floats | None = None  # sent minus released: our own delay
    gap_p99_ms: Floats | None = None  # p99 gap between chunks within the call
    machine: Ints | None = None  # index into Deployment.machines
    tail: Bools | None = None  # released when the block's load had begun to drain; None: nobody knows

    def __post_init__(self) -> None:
        for each in fields(self):
            column = getattr(self, each.name)
            assert column is None or column.shape == self.pair.shape, each.name

    def __len__(self) -> int:
        return int(self.pair.size)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sweep:
    """Hold a context sweep on one arm: one row a call, all arms of a run with the same (pair, context, users) cells."""

    arm: str
    pair: Ints
    users: Ints  # calls that decode together
    context_tokens: Floats  # the call's own mean KV tokens while decoding (prompt + half the output)
    itl_ms: Floats  # mean token latency of the call
    ttft_ms: Floats | None = None
    prompt_tokens: Floats | None = None
    computed_tokens: Floats | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            column = getattr(self, each.name)
            assert each.name == "arm" or column is None or column.shape == self.pair.shape, each.name
