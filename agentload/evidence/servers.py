"""What is known about the arms' servers: what each said of itself, what was expected, and what a profile adds.

Keys of `fingerprints.facts` that are read (all optional): version, models, max_model_len, kv_cache_dtype, skip_layers, prefix_caching,
pool_tokens, max_concurrency, attention_backend, process_start_s. Numbers and truth values may be text, as in a metric's labels. Keys of
`arms.expected`: kv_cache_dtype, skip_layers, prefix_caching, backend, version, max_model_len.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import duckdb

from advisor.evidence import Arm, Deployment, Gpu, Model
from agentload.errors import ProfileError
from agentload.kvmath.layers import bytes_per_token
from agentload.kvmath.pool import GIB, pool_of
from agentload.model.profile import ArmProfile, ModelShape, Price

UNKNOWN_GPU = "unknown GPU"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One arm as the run describes it."""

    arm: str
    model: str | None
    machine: str | None
    profile: str | None
    expected: Mapping[str, Any]
    facts: Mapping[str, Any]
    """Its latest fingerprint; a server that changed in between made its blocks void."""


def servers(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[Server, ...]:
    """Read the arms of a run in their order."""
    rows = connection.execute(
        """
        SELECT arm, model, machine, profile, expected,
            (SELECT arg_max(facts, (leg, at_ns)) FROM fingerprints AS f WHERE f.run_id = a.run_id AND f.arm = a.arm)
        FROM arms AS a WHERE run_id = ? ORDER BY position
        """,
        [run_id],
    ).fetchall()
    return tuple(
        Server(
            arm=arm, model=model, machine=machine, profile=profile, expected=json.loads(expected or "{}"), facts=json.loads(facts or "{}")
        )
        for arm, model, machine, profile, expected, facts in rows
    )


def described(server: Server, profile: ArmProfile | None) -> Arm:
    """Describe an arm to the advisor."""
    facts, expected = server.facts, server.expected
    return Arm(
        name=server.arm,
        expected_dtype=_text(expected.get("kv_cache_dtype")) or (profile.kv_dtype if profile else None),
        observed_dtype=_text(facts.get("kv_cache_dtype")),
        kernel=_text(facts.get("attention_backend")),
        skip_layers=_names(facts.get("skip_layers")),
        prefix_caching=_truth(facts.get("prefix_caching")),
        kv_bytes_per_token=float(bytes_per_token(profile.model, profile.kv_dtype, profile.skip_layers)) if profile else None,
        page_bytes=_page_bytes(profile),
        pool_tokens=_number(facts.get("pool_tokens")),
        expected_pool_tokens=_expected_pool(profile),
        max_concurrency=_number(facts.get("max_concurrency")),
        machine=server.machine,
    )


def deployment(arms: Sequence[Server], profile: ArmProfile | None, price: Price | None) -> Deployment:
    """Describe what all arms share."""
    length = next((number for each in arms if (number := _number(each.facts.get("max_model_len"))) is not None), None)
    return Deployment(
        version=next((text for each in arms if (text := _text(each.facts.get("version")))), None),
        gpu=_gpu(profile, price),
        max_model_len=None if length is None else round(length),
        machines=tuple(sorted({each.machine for each in arms if each.machine is not None})),
    )


def model(name: str | None, arms: Sequence[Server], profile: ArmProfile | None) -> Model:
    """Describe the served model."""
    served = name or next((each.model for each in arms if each.model), None) or "unknown model"
    if profile is None:
        return Model(name=served)
    shape = profile.model
    whole = [group for group in shape.groups if group.kind in {"full", "mla"}]
    windows = [group for group in shape.groups if group.kind == "sliding"]
    return Model(
        name=served,
        active_params=shape.active_parameters,
        layers=sum(group.layers for group in shape.groups),
        full_layers=sum(group.layers for group in whole),
        window_layers=sum(group.layers for group in windows),
        window_tokens=windows[0].window if windows else None,
        heads=shape.heads,
        kv_heads=whole[0].kv_heads if whole else None,
        head_dim=whole[0].head_dim if whole else None,
        attention=_attention(shape),
    )


def _attention(shape: ModelShape) -> Literal["gqa", "mla", "hybrid"]:
    kinds = {group.kind for group in shape.groups}
    return "mla" if "mla" in kinds else "hybrid" if "mamba" in kinds else "gqa"


def _gpu(profile: ArmProfile | None, price: Price | None) -> Gpu:
    if profile is None:
        return Gpu(name=UNKNOWN_GPU)
    gpu = profile.gpu
    return Gpu(
        name=gpu.name,
        sm=gpu.compute_capability,
        bf16_tflops=gpu.bf16_tflops,
        fp8_tflops=gpu.fp8_tflops,
        hbm_tb_s=gpu.bandwidth_tb_s,
        memory_gb=gpu.memory_gib * GIB / 1e9,
        usd_per_hour=price.usd_per_gpu_hour if price else None,
    )


def _expected_pool(profile: ArmProfile | None) -> float | None:
    if profile is None:
        return None
    try:
        return float(pool_of(profile).tokens)
    except ProfileError:  # its weights are unknown: nothing to hold the server against
        return None


def _page_bytes(profile: ArmProfile | None) -> float | None:
    if profile is None:
        return None
    try:
        return float(pool_of(profile).layout.page_bytes)
    except ProfileError:
        return None


def _text(value: object) -> str | None:
    return None if value in (None, "", "None") else str(value)


def _number(value: object) -> float | None:
    try:
        return None if value in (None, "None") else float(str(value))
    except ValueError:
        return None


def _truth(value: object) -> bool | None:
    return {"true": True, "false": False}.get(str(value).lower())


def _names(value: object) -> tuple[str, ...]:
    """Read a list of layers, also one that Python printed into a label."""
    found = value if isinstance(value, list) else re.findall(r"[\w.]+", str(value))
    return tuple(str(name) for name in found if str(name) != "None")
