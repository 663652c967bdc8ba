"""Fit engines to a measured run: profiles, and twins of its servers in virtual time.

A fit has the coefficients of each arm, with the error on calls that were left out. A twin
has the pool that an arm's server reports, and the step times that were seen on it.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Final

import duckdb
import numpy as np

from agentload.builtin import find
from agentload.emulator.fit import Fitted, Observed, fit
from agentload.emulator.profile import parse, read
from agentload.errors import ProfileError
from agentload.evidence.described import DTYPES
from agentload.evidence.plays import plays_table
from agentload.evidence.servers import ArmServer, count, names, number, text
from agentload.evidence.view import RunView, run_view
from agentload.kvmath.layout import layout
from agentload.kvmath.pool import pool_of
from agentload.layout.step_times import Bounds
from agentload.model.apart import STEP_TIMES
from agentload.model.controls import is_control
from agentload.model.profile import (
    ArmProfile,
    Gpu,
    LayerGroup,
    ModelShape,
    Noise,
    Profile,
    Provenance,
    Source,
)
from agentload.model.profile import Server as Settings
from agentload.model.record import Record
from agentload.store.database import reading

PLAIN: Final = LayerGroup(kind="full", layers=1, kv_heads=1, head_dim=1)
"""A model whose geometry is not known keeps every token of every layer, as most do."""
BLOCK: Final = 16
BUDGET: Final = 8192
SEQUENCES: Final = 256
LARGEST_ERROR: Final = 0.1
"""Median of the error on what was left out; beyond it a twin says nothing."""

REPEATS = "SELECT count(DISTINCT pair) FROM calls WHERE run_id = ? AND workload = ?"


class Twin(Record):
    """The twin of an arm, and what its fit is worth."""

    arm: ArmProfile
    fitted: Fitted


def repeats(connection: duckdb.DuckDBPyConnection, run_id: str) -> int:
    """Count how often the step times of a run were played or started."""
    (found,) = connection.execute(REPEATS, [run_id, STEP_TIMES]).fetchall()
    return int(found[0])


def bounds(database: Path, run_id: str, *, longest: int) -> Bounds:
    """Return the smallest limits that any server of a run has.

    *longest* is the context that the user's sessions reach. Raises ProfileError for an arm whose
    steps cannot be seen, or whose pool is not known.
    """
    arms = _arms(database, run_id).values()
    return Bounds(
        window=min(each.server.max_model_len for each in arms),
        pool_tokens=min(pool_of(each).tokens for each in arms),
        sequences=min(each.server.max_num_seqs for each in arms),
        longest=longest,
        is_small=any("cpu" in each.server.software for each in arms),
    )


def twins(database: Path, run_id: str) -> dict[str, Twin]:
    """Fit a twin of each arm to all calls of a run.

    Raises ProfileError where one cannot be had; the rest would compare nothing.
    """
    arms = _arms(database, run_id)
    with reading(database) as connection:
        fits = _fits(connection, run_view(connection, run_id), arms)
    for name, each in fits.items():
        worst = max(each.itl_error.median, each.ttft_error.median)
        if worst > LARGEST_ERROR:
            raise ProfileError(
                f"{name}: step times that were left out are missed by {worst:.0%}",
                hint="capacity is searched instead",
            )
    return {name: Twin(arm=_fitted(arms[name], each), fitted=each) for name, each in fits.items()}


def _fitted(known: ArmProfile, found: Fitted) -> ArmProfile:
    note = "; ".join(found.notes) or None
    return replace(known, step=found.step, noise=Noise(), accuracy=(), load_tests=(), note=note)


def _arms(database: Path, run_id: str) -> dict[str, ArmProfile]:
    with reading(database) as connection:
        view = run_view(connection, run_id)
    return {each.arm: _geometry(each) for each in view.servers() if not is_control(each.arm)}


def _geometry(server: ArmServer) -> ArmProfile:
    """Return an arm without its step times, by its profile or else by its server's report."""
    if server.profile is not None:
        name, _, arm = server.profile.rpartition("/")
        known = next(
            each
            for each in parse(find("profiles", name).read_text(encoding="utf-8"), name=name).arms
            if each.name == arm
        )
        if known.speculation is not None:
            raise ProfileError(
                f"{server.arm} speculates: what is accepted depends on the text",
                hint="capacity is searched instead",
            )
        return replace(known, name=server.arm, step=None)
    return _told(server)


def _check_steps_are_seen(server: ArmServer) -> None:
    """Raise ProfileError where a chunk does not show one step."""
    if text(server.settings.get("speculative")) or "--speculative-config" in server.arguments:
        raise ProfileError(
            f"{server.arm} speculates: what is accepted depends on the text",
            hint="capacity is searched instead",
        )
    if (_argument(server, "--stream-interval") or 1) > 1:
        raise ProfileError(
            f"{server.arm} streams several tokens at a time, which hides its steps",
            hint="--stream-interval 1",
        )


def _window_and_pool(server: ArmServer) -> tuple[int, float]:
    """Return the longest context and the pool of a server, both in tokens.

    Raises ProfileError where the server does not report them, or has several engines.
    """
    window = count(server.facts.get("max_model_len"))
    pool = number(server.facts.get("pool_tokens"))
    engines = server.replicas * (count(server.facts.get("engines")) or 1)
    if window is None or pool is None or engines > 1:
        raise ProfileError(
            f"{server.arm} is no single server that tells its window and its pool",
            hint="capacity is searched instead",
        )
    return window, pool


def _told(server: ArmServer) -> ArmProfile:
    _check_steps_are_seen(server)
    window, pool = _window_and_pool(server)
    facts = server.facts
    block = count(facts.get("block_size")) or BLOCK
    dtype = DTYPES.get(text(facts.get("kv_cache_dtype")) or "auto", "auto")
    shape = server.shape if server.shape is not None and server.shape.groups else None
    model = shape or ModelShape(name=server.model or server.arm, groups=(PLAIN,), max_len=window)
    skipped = names(facts.get("skip_layers")) if shape is not None else ()
    cut_by = partial(layout, model, dtype, skip_layers=skipped)
    # The reported block size is that of layers whose blocks
    # grew; take the usual size where it would grow to that.
    grown = (each for each in (BLOCK, block) if cut_by(block_tokens=each).block_tokens == block)
    settings = Settings(
        software=f"vLLM {text(facts.get('version')) or ''}",
        max_model_len=window,
        block_tokens=next(grown, block),
        max_num_batched_tokens=_setting(server, "max_num_batched_tokens") or BUDGET,
        max_num_seqs=_setting(server, "max_num_seqs") or SEQUENCES,
    )
    cut = cut_by(block_tokens=settings.block_tokens)
    # Pages that hold the tokens the server reports: it counts
    # them as requests of a whole window, one after the other.
    pages = ceil(pool / window * cut.peak_pages(window, settings.max_num_batched_tokens))
    return ArmProfile(
        name=server.arm,
        profile="twin",
        gpu=Gpu(
            name=server.card or "unknown",
            memory_gib=0,
            bandwidth_tb_s=0,
            bf16_tflops=0,
            compute_capability=0,
        ),
        model=model,
        server=replace(settings, kv_cache_memory_bytes=pages * cut.page_bytes),
        kv_dtype=dtype,
        skip_layers=skipped,
    )


def _setting(server: ArmServer, name: str) -> int | None:
    return count(server.settings.get(name)) or _argument(server, f"--{name.replace('_', '-')}")


def _argument(server: ArmServer, option: str) -> int | None:
    """Return the number that a server was started with for an option; None without it."""
    return count(next(iter(server.arguments.get(option, ())), None))


# Invalid blocks and failed calls say nothing of the model; each retry is a call of its own.
CALLS = """
SELECT c.leg, c.sent_ns, c.prompt_tokens, coalesce(c.cached_tokens, 0), c.output_tokens, c.chunk_ns
FROM calls AS c
WHERE c.run_id = ? AND c.arm = ? AND c.status = 'ok' AND c.sent_ns IS NOT NULL
    AND c.prompt_tokens IS NOT NULL
  AND len(c.chunk_ns) > 1 AND NOT EXISTS (
    FROM plays AS p WHERE (p.leg, p.arm) = (c.leg, c.arm) AND c.released_ns BETWEEN p.started_ns
        AND p.ended_ns)
ORDER BY c.leg, c.sent_ns
"""
LEG_NS: Final = 3_600_000_000_000
"""Between the legs of a run, whose clocks say nothing of each other."""
PACKED: Final = 1.2
"""Tokens in a chunk, on average: above it steps are hidden, by
speculation or by a server that streams every so many tokens.
"""


def profile_of_run(
    database: Path, run_id: str, *, like: str, name: str
) -> tuple[Profile, dict[str, Fitted]]:
    """Fit every arm of a run that the profile *like* describes; also return the fits.

    All but timing is taken from *like*.
    """
    model = read(like)
    known = {arm.name: arm for arm in model.arms if arm.step is not None}
    with reading(database) as connection:
        view = run_view(connection, run_id)
        arms = [row.arm for row in view.arms]
        shared = [arm for arm in arms if arm in known]
        if not shared:
            raise ProfileError(
                f"run {run_id} has no arm that {like} describes: "
                f"{', '.join(arms) or 'no arm at all'}",
                hint=f"{like} has: {', '.join(known)}",
            )
        fits = _fits(connection, view, {arm: known[arm] for arm in shared})
    made = Profile(
        name=name,
        title=f"{model.title}, fitted to run {run_id}",
        sources=(
            Source(key="run", title=f"agentload run {run_id}", where=str(database)),
            *model.sources,
        ),
        provenance=_provenance(fits),
        arms=tuple(replace(_fitted(known[arm], fits[arm]), profile=name) for arm in shared),
        slos=model.slos,
        price=model.price,
    )
    return made, fits


def observation(connection: duckdb.DuckDBPyConnection, run_id: str, arm: str) -> Observed:
    """Read the calls of an arm, on one axis of time.

    Raises ProfileError where steps cannot be read from chunks.
    """
    rows = connection.execute(CALLS, [run_id, arm]).fetchall()
    legs, sent, prompt, cached, output, stamps = zip(*rows, strict=True) if rows else ((),) * 6
    chunks = sum(map(len, stamps))
    if sum(output) > PACKED * chunks:
        raise ProfileError(
            f"{arm}: a chunk brings {sum(output) / chunks:.1f} tokens on average, so its "
            "steps cannot be seen",
            hint="without speculation, and with --stream-interval 1",
        )
    starts = dict(zip(reversed(legs), reversed(sent), strict=True))
    moved = dict[int, int]()
    until_ns = 0
    for leg, start_ns in sorted(starts.items()):
        moved[leg] = until_ns - start_ns
        until_ns = LEG_NS + max(
            each[-1] + moved[leg] for of, each in zip(legs, stamps, strict=True) if of == leg
        )
    return Observed(
        sent_ns=np.array(
            [at + moved[leg] for leg, at in zip(legs, sent, strict=True)], dtype=np.int64
        ),
        prompt_tokens=np.array(prompt, dtype=np.int64),
        cached_tokens=np.array(cached, dtype=np.int64),
        output_tokens=np.array(output, dtype=np.int64),
        stamps_ns=[
            np.array(each, dtype=np.int64) + moved[leg]
            for leg, each in zip(legs, stamps, strict=True)
        ],
    )


def _fits(
    connection: duckdb.DuckDBPyConnection, view: RunView, arms: Mapping[str, ArmProfile]
) -> dict[str, Fitted]:
    """Fit every arm to its calls, those of invalid blocks left out."""
    with plays_table(connection, [play for play in view.plays if play.is_void]):
        return {name: _fit_of(connection, view.name, arm) for name, arm in arms.items()}


def _fit_of(connection: duckdb.DuckDBPyConnection, run_id: str, arm: ArmProfile) -> Fitted:
    """Fit an arm to its calls.

    The time to read its weights is taken from its step time, where it has one.
    """
    weights_ms = None if arm.step is None else arm.step.weights_ms
    seen = observation(connection, run_id, arm.name)
    return fit(
        seen,
        weights_ms=weights_ms,
        experts=arm.model.experts,
        budget=arm.server.max_num_batched_tokens,
    )


def _provenance(fits: dict[str, Fitted]) -> Provenance:
    errors = "; ".join(
        f"{arm}: token latency {found.itl_error.median:.1%} (p90 "
        f"{found.itl_error.p90:.1%}), TTFT {found.ttft_error.median:.1%} "
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
