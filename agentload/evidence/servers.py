"""What a run's rows say of the arms' servers: what each said of itself, and what the arms file says of it.

Keys of `fingerprints.facts` that are read (all optional): version, models, max_model_len, kv_cache_dtype, skip_layers, prefix_caching,
pool_tokens, pool_blocks, block_size, engines, max_concurrency, attention_backend, flash_version, process_start_s, replicas, settings
(tensor_parallel, data_parallel, quantization). Numbers and truth values may be text, as in a metric's labels.
Keys of `arms.expected`: kv_cache_dtype, skip_layers, prefix_caching, backend, version, max_model_len.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import msgspec

from agentload.evidence import values
from agentload.model.profile import ModelShape


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
    gpu: str | None = None
    gpus: int | None = None
    usd_per_gpu_hour: float | None = None
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    shape: ModelShape | None = None

    @property
    def ranks(self) -> int | None:
        """Return how many GPUs share each layer, as the arms file or the server says."""
        return self.tensor_parallel or values.count(self._settings.get("tensor_parallel"))

    @property
    def gpu_count(self) -> int | None:
        """Return the GPUs of one replica: as the arms file says, else as many as the server is split over."""
        if self.gpus is not None:
            return self.gpus
        copies = self.data_parallel or values.count(self._settings.get("data_parallel"))
        return None if self.ranks is None and copies is None else (self.ranks or 1) * (copies or 1)

    @property
    def replicas(self) -> int:
        """Return the replicas behind the arm's URL."""
        return values.count(self.facts.get("replicas")) or 1

    @property
    def weight_bits(self) -> int | None:
        """Return the width of the weights; a quantisation that the server was started with makes it unknown how wide, but at most 8."""
        if self._settings.get("quantization") is not None and (self.shape is None or self.shape.weight_bits in {None, 16}):
            return 8
        return self.shape.weight_bits if self.shape is not None else None

    @property
    def _settings(self) -> Mapping[str, Any]:
        found = self.facts.get("settings")
        return found if isinstance(found, Mapping) else {}


def servers(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[Server, ...]:
    """Read the arms of a run in their order."""
    rows = connection.execute(
        """
        SELECT arm, model, machine, profile, gpu, gpus, usd_per_gpu_hour, tensor_parallel, data_parallel, expected, shape,
            (SELECT arg_max(facts, (leg, at_ns)) FROM fingerprints AS f WHERE f.run_id = a.run_id AND f.arm = a.arm)
        FROM arms AS a WHERE run_id = ? ORDER BY position
        """,
        [run_id],
    ).fetchall()
    names = ("arm", "model", "machine", "profile", "gpu", "gpus", "usd_per_gpu_hour", "tensor_parallel", "data_parallel")
    return tuple(
        Server(
            **dict(zip(names, known, strict=True)),
            expected=json.loads(expected or "{}"),
            facts=json.loads(facts or "{}"),
            shape=None if shape is None else msgspec.json.decode(shape, type=ModelShape),
        )
        for *known, expected, shape, facts in rows
    )
