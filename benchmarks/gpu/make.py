"""Make what a model takes at a site: configuration and tokenizer,
arms file, profile, and the trace of its steps; no weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from agentload.emulator.profile import read, text
from agentload.kvmath.pool import pool_of
from agentload.layout.step_times import Bounds, grid, step_times
from agentload.model.profile import Profile
from agentload.prompts.words import WORDS
from agentload.tracefile.files import write
from benchmarks.gpu import plan
from benchmarks.gpu.plan import Site


def make(data: Mapping[str, Any], site: Site, *, agentload: str) -> None:
    """Make it all; what is there already is made again, but for the model."""
    site.work.mkdir(parents=True, exist_ok=True)
    profile = profiled(data, site.model)
    plan.profile_path(site).write_text(text(profile), encoding="utf-8")
    plan.arms_path(site).write_text(
        yaml.safe_dump(plan.arms(data, site, agentload=agentload), sort_keys=False),
        encoding="utf-8",
    )
    window = data["places"][site.place]["values"]["window"]
    pool = data["places"][site.place].get("steps_pool")
    bounds = Bounds(
        window=window,
        pool_tokens=pool or min(pool_of(arm).tokens for arm in profile.arms),
        sequences=256,
        longest=window,
        is_small=site.place != "gpu",
    )
    write(site.work / f"{site.model}-steps.jsonl", step_times(grid(bounds), seed=0))
    if site.place != "emulated":
        _model(data, site)


def profiled(data: Mapping[str, Any], model: str) -> Profile:
    """Return the profile of a model with the KV
    memory and the arms that the kit measures it with.
    """
    wanted = data["models"][model]
    known = read(wanted["profile"])
    memory = wanted["kv_gib"] << 30
    arms = [
        replace(arm, server=replace(arm.server, kv_cache_memory_bytes=memory))
        for arm in known.arms
        if arm.name in wanted["arms"]
    ]
    return replace(known, arms=tuple(arms))


def _model(data: Mapping[str, Any], site: Site) -> None:
    from benchmarks.real_vllm.random_model import write_tokenizer  # takes the package tokenizers

    out = site.work / site.model
    config = plan.config(data, site.model, small=site.place == "cpu")
    if not (out / "tokenizer.json").exists():
        write_tokenizer(out, list(WORDS), length=plan.LENGTH, vocabulary=config["vocab_size"])
    (out / "config.json").write_text(json.dumps(config, indent=1))
    (out / "generation_config.json").write_text(
        json.dumps({"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0})
    )
