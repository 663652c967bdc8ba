"""A twin: an engine in virtual time with the pool that an arm's server tells, and the step times that were seen on it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Final

import duckdb

from agentload.builtin import find
from agentload.emulator.fit import Fitted
from agentload.emulator.profile import parse
from agentload.errors import ProfileError
from agentload.evidence.fit import fit_of
from agentload.evidence.plays import plays, tabled
from agentload.evidence.servers import Server, count, names, number, servers, text
from agentload.kvmath.layout import layout
from agentload.kvmath.pool import pool_of
from agentload.layout.step_times import Bounds
from agentload.model.apart import STEP_TIMES
from agentload.model.controls import is_control
from agentload.model.kv import FORMATS, KvDtype
from agentload.model.profile import ArmProfile, Gpu, LayerGroup, ModelShape, Noise
from agentload.model.profile import Server as Settings
from agentload.store.database import reading

_DTYPES: Final[Mapping[str, KvDtype]] = {each.flag: each.dtype for each in FORMATS.values()}
PLAIN: Final = LayerGroup(kind="full", layers=1, kv_heads=1, head_dim=1)
"""A model whose geometry is not known keeps every token of every layer, as most do."""
BLOCK: Final = 16
BUDGET: Final = 8192
SEQUENCES: Final = 256
LARGEST_ERROR: Final = 0.1
"""Median of the error on what was left out; beyond it a twin says nothing."""

REPEATS = "SELECT count(DISTINCT pair) FROM calls WHERE run_id = ? AND workload = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """The twin of an arm, and what its fit is worth."""

    arm: ArmProfile
    fitted: Fitted


def repeats(connection: duckdb.DuckDBPyConnection, run_id: str) -> int:
    """Count how often the step times of a run were played, or begun."""
    (found,) = connection.execute(REPEATS, [run_id, STEP_TIMES]).fetchall()
    return int(found[0])


def bounds(database: Path, run_id: str, *, longest: int) -> Bounds:
    """Return what the servers of a run take, the smallest of each; *longest* is the context that the user's sessions reach.

    Raises ProfileError for an arm whose steps cannot be seen, or whose pool is not known.
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
    """Fit a twin of each arm to all calls of a run. Raises ProfileError where one cannot be had; the rest would compare nothing."""
    arms = _arms(database, run_id)
    with reading(database) as connection, tabled(connection, [play for play in plays(connection, run_id) if play.is_void]):
        found = {name: _twin(arm, fit_of(connection, run_id, arm)) for name, arm in arms.items()}
    for name, each in found.items():
        worst = max(each.fitted.itl_error.median, each.fitted.ttft_error.median)
        if worst > LARGEST_ERROR:
            raise ProfileError(f"{name}: step times that were left out are missed by {worst:.0%}", hint="capacity is searched instead")
    return found


def _twin(arm: ArmProfile, found: Fitted) -> Twin:
    note = "; ".join(found.notes) or None
    return Twin(arm=replace(arm, step=found.step, noise=Noise(), accuracy=(), load_tests=(), note=note), fitted=found)


def _arms(database: Path, run_id: str) -> dict[str, ArmProfile]:
    with reading(database) as connection:
        return {each.arm: _geometry(each) for each in servers(connection, run_id) if not is_control(each.arm)}


def _geometry(server: Server) -> ArmProfile:
    """Return an arm with everything but its step times: of the profile that it plays, else of what its server tells."""
    if server.profile is not None:
        name, _, arm = server.profile.rpartition("/")
        known = next(each for each in parse(find("profiles", name).read_text(encoding="utf-8"), name=name).arms if each.name == arm)
        if known.speculation is not None:
            raise ProfileError(f"{server.arm} speculates: what is accepted depends on the text", hint="capacity is searched instead")
        return replace(known, name=server.arm, step=None)
    return _told(server)


def _told(server: Server) -> ArmProfile:
    facts, arguments = server.facts, server.arguments
    if text(server.settings.get("speculative")) or "--speculative-config" in arguments:
        raise ProfileError(f"{server.arm} speculates: what is accepted depends on the text", hint="capacity is searched instead")
    if (count(next(iter(arguments.get("--stream-interval", ())), None)) or 1) > 1:
        raise ProfileError(f"{server.arm} streams several tokens at a time, which hides its steps", hint="--stream-interval 1")
    window, pool = count(facts.get("max_model_len")), number(facts.get("pool_tokens"))
    if window is None or pool is None or server.replicas > 1 or (count(facts.get("engines")) or 1) > 1:
        raise ProfileError(f"{server.arm} is no single server that tells its window and its pool", hint="capacity is searched instead")
    block = count(facts.get("block_size")) or BLOCK
    dtype = _DTYPES.get(text(facts.get("kv_cache_dtype")) or "auto", "auto")
    shape = server.shape if server.shape is not None and server.shape.groups else None
    model = shape or ModelShape(name=server.model or server.arm, groups=(PLAIN,), max_len=window)
    skipped = names(facts.get("skip_layers")) if shape is not None else ()
    # What is told is the block of those layers whose blocks grew; without it the server's own is the usual one.
    grown = (each for each in (BLOCK, block) if layout(model, dtype, skip_layers=skipped, block_tokens=each).block_tokens == block)
    settings = Settings(
        software=f"vLLM {text(facts.get('version')) or ''}",
        max_model_len=window,
        block_tokens=next(grown, block),
        max_num_batched_tokens=_setting(server, "max_num_batched_tokens") or BUDGET,
        max_num_seqs=_setting(server, "max_num_seqs") or SEQUENCES,
    )
    cut = layout(model, dtype, skip_layers=skipped, block_tokens=settings.block_tokens)
    # As many pages as the server says tokens: by its own count, a request of the whole window over and over.
    pages = ceil(pool / window * cut.peak_pages(window, settings.max_num_batched_tokens))
    return ArmProfile(
        name=server.arm,
        profile="twin",
        gpu=Gpu(name=server.gpu or "unknown", memory_gib=0, bandwidth_tb_s=0, bf16_tflops=0, compute_capability=0),
        model=model,
        server=replace(settings, kv_cache_memory_bytes=pages * cut.page_bytes),
        kv_dtype=dtype,
        skip_layers=skipped,
    )


def _setting(server: Server, name: str) -> int | None:
    option = f"--{name.replace('_', '-')}"
    return count(server.settings.get(name)) or count(next(iter(server.arguments.get(option, ())), None))
