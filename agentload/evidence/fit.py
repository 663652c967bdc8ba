"""Make a profile of a measured run: the coefficients of each arm, with the error on what was left out."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import duckdb
import numpy as np

from agentload.emulator.fit import Fitted, Observed, fit
from agentload.emulator.profile import read
from agentload.errors import ProfileError
from agentload.evidence.plays import plays, tabled
from agentload.model.profile import ArmProfile, Noise, Profile, Provenance, Source
from agentload.model.rows import ArmRow
from agentload.store import tables
from agentload.store.database import reading

# Void blocks and failed calls say nothing of the model; retries stand for themselves.
CALLS = """
SELECT c.leg, c.sent_ns, c.prompt_tokens, coalesce(c.cached_tokens, 0), c.output_tokens, c.chunk_ns
FROM calls AS c
WHERE c.run_id = ? AND c.arm = ? AND c.status = 'ok' AND c.sent_ns IS NOT NULL AND c.prompt_tokens IS NOT NULL
  AND len(c.chunk_ns) > 1 AND NOT EXISTS (
    FROM plays AS p WHERE (p.leg, p.arm) = (c.leg, c.arm) AND c.released_ns BETWEEN p.started_ns AND p.ended_ns)
ORDER BY c.leg, c.sent_ns
"""
LEG_NS: Final = 3_600_000_000_000
"""Between the legs of a run, whose clocks say nothing of each other."""
PACKED: Final = 1.2
"""Tokens in a chunk, on average: above it steps are hidden, by speculation or by a server that streams every so many tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedProfile:
    """A profile of one's own, and how well each arm's fit predicts."""

    profile: Profile
    fits: dict[str, Fitted]


def fitted(database: Path, run_id: str, *, like: str, name: str) -> FittedProfile:
    """Fit every arm of a run that the profile *like* describes; hardware, geometry and KV configuration are taken from there."""
    model = read(like)
    known = {arm.name: arm for arm in model.arms if arm.step is not None}
    with reading(database) as connection:
        arms = [row.arm for row in tables.rows(connection, ArmRow, run_id=run_id)]
        shared = [arm for arm in arms if arm in known]
        if not shared:
            raise ProfileError(
                f"run {run_id} has no arm that {like} describes: {', '.join(arms) or 'no arm at all'}",
                hint=f"{like} has: {', '.join(known)}",
            )
        with tabled(connection, [play for play in plays(connection, run_id) if play.is_void]):
            fits = {arm: fit_of(connection, run_id, known[arm]) for arm in shared}
    made = Profile(
        name=name,
        title=f"{model.title}, fitted to run {run_id}",
        sources=(Source(key="run", title=f"agentload run {run_id}", where=str(database)), *model.sources),
        provenance=_provenance(fits),
        arms=tuple(_arm(known[arm], fits[arm], name) for arm in shared),
        slos=model.slos,
        price=model.price,
    )
    return FittedProfile(profile=made, fits=fits)


def observed(connection: duckdb.DuckDBPyConnection, run_id: str, arm: str) -> Observed:
    """Read the calls of an arm, on one axis of time. Raises ProfileError where its steps cannot be told from its chunks."""
    rows = connection.execute(CALLS, [run_id, arm]).fetchall()
    legs, sent, prompt, cached, output, stamps = zip(*rows, strict=True) if rows else ((),) * 6
    chunks = sum(map(len, stamps))
    if sum(output) > PACKED * chunks:
        raise ProfileError(
            f"{arm}: a chunk brings {sum(output) / chunks:.1f} tokens on average, so its steps cannot be seen",
            hint="without speculation, and with --stream-interval 1",
        )
    starts = dict(zip(reversed(legs), reversed(sent), strict=True))
    moved, until_ns = dict[int, int](), 0
    for leg, start_ns in sorted(starts.items()):
        moved[leg] = until_ns - start_ns
        until_ns = LEG_NS + max(each[-1] + moved[leg] for of, each in zip(legs, stamps, strict=True) if of == leg)
    return Observed(
        sent_ns=np.array([at + moved[leg] for leg, at in zip(legs, sent, strict=True)], dtype=np.int64),
        prompt_tokens=np.array(prompt, dtype=np.int64),
        cached_tokens=np.array(cached, dtype=np.int64),
        output_tokens=np.array(output, dtype=np.int64),
        stamps_ns=[np.array(each, dtype=np.int64) + moved[leg] for leg, each in zip(legs, stamps, strict=True)],
    )


def fit_of(connection: duckdb.DuckDBPyConnection, run_id: str, arm: ArmProfile) -> Fitted:
    """Fit what was seen of an arm; what reading its weights takes is its step time's, where it has one."""
    weights_ms = None if arm.step is None else arm.step.weights_ms
    seen = observed(connection, run_id, arm.name)
    return fit(seen, weights_ms=weights_ms, experts=arm.model.experts, budget=arm.server.max_num_batched_tokens)


def _arm(known: ArmProfile, found: Fitted, name: str) -> ArmProfile:
    note = "; ".join(found.notes) or None
    return replace(known, profile=name, step=found.step, noise=Noise(), accuracy=(), load_tests=(), note=note)


def _provenance(fits: dict[str, Fitted]) -> Provenance:
    errors = "; ".join(
        f"{arm}: token latency {found.itl_error.median:.1%} (p90 {found.itl_error.p90:.1%}), TTFT {found.ttft_error.median:.1%} "
        f"(p90 {found.ttft_error.p90:.1%})"
        for arm, found in fits.items()
    )
    largest = max(found.step.known_to_batch for found in fits.values())
    return Provenance(
        published="nothing",
        assumed="weights_ms, the hardware and the geometry, from the profile that this one is like",
        fitted=f"every coefficient, to {sum(found.calls for found in fits.values())} calls",
        predicted=f"what was left out, with a median error of {errors}",
        extrapolates=f"batches above {largest}, and contexts beyond those of the run",
    )
