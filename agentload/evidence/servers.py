"""Read what a run's rows say of the arms' servers, by their reports and the arms file.

Keys of `fingerprints.facts` that are read (all optional): version, models, max_model_len,
kv_cache_dtype, skip_layers, prefix_caching, pool_tokens, pool_blocks, block_size,
engines, max_concurrency, attention_backend, flash_version, process_start_s, replicas,
warnings, arguments (each option with its values), settings (see `identity.settings`).
Numbers and truth values may be text, as in a metric's labels. Keys of `arms.expected`:
kv_cache_dtype, skip_layers, prefix_caching, backend, version, max_model_len.
"""

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from agentload.kvmath.gpus import gpu_named
from agentload.model.profile import ModelShape
from agentload.model.record import Record
from agentload.model.rows import ArmRow, FingerprintRow

_AS_STORED: Final = (
    "arm",
    "model",
    "machine",
    "profile",
    "gpu",
    "gpus",
    "usd_per_gpu_hour",
    "tensor_parallel",
    "data_parallel",
)
_OPTIONS: Final[Mapping[str, str]] = {
    "attention_backend": "--attention-backend",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "max_num_seqs": "--max-num-seqs",
    "kv_cache_memory_bytes": "--kv-cache-memory-bytes",
    "kv_offloading_gib": "--kv-offloading-size",
}


class ArmServer(Record):
    """One arm as the run describes it."""

    arm: str
    model: str | None
    machine: str | None
    profile: str | None
    expected: Mapping[str, Any]
    facts: Mapping[str, Any]
    """Its latest fingerprint; a server that changed in between made its blocks void."""
    starts: tuple[Mapping[str, Any], ...] = ()
    """The last that each of its processes told."""
    gpu: str | None = None
    gpus: int | None = None
    usd_per_gpu_hour: float | None = None
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    shape: ModelShape | None = None

    @property
    def card(self) -> str | None:
        """Return the kind of its GPUs: by its machine, or by the arms file.

        The arms file knows better where the machine has two kinds, or one that has no known peaks.
        """
        seen = text(self.settings.get("gpu"))
        if self.gpu is None or seen is None:
            return self.gpu or seen
        return seen if ", " not in seen and gpu_named(seen) is not None else self.gpu

    @property
    def ranks(self) -> int | None:
        """Return how many GPUs share each layer, as the arms file or the server says."""
        return self.tensor_parallel or count(self.settings.get("tensor_parallel"))

    @property
    def gpu_count(self) -> int | None:
        """Return the GPUs of one replica, by the arms file or by how the server is split."""
        if self.gpus is not None:
            return self.gpus
        copies = self.data_parallel or count(self.settings.get("data_parallel"))
        if self.ranks is None and copies is None:
            return None
        return (self.ranks or 1) * (copies or 1)

    @property
    def replicas(self) -> int:
        """Return the replicas behind the arm's URL."""
        return count(self.facts.get("replicas")) or 1

    @property
    def is_command_told(self) -> bool:
        """Say whether the server's log, or the arm's launch, gave its full command line."""
        return bool(self.facts.get("arguments"))

    @property
    def arguments(self) -> Mapping[str, Sequence[str]]:
        """Return the options that the server was started with.

        Without its command line, only those that its development mode shows.
        """
        if self.is_command_told:
            return cast(Mapping[str, Sequence[str]], self.facts["arguments"])
        eager = {"--enforce-eager": ()} if truth(self.settings.get("eager")) else {}
        said = {option: text(self.settings.get(name)) for name, option in _OPTIONS.items()}
        method = text(self.settings.get("speculative"))
        drafts = count(self.settings.get("drafts"))
        model = text(self.settings.get("draft_model"))
        return {
            **eager,
            **({} if method is None else speculative_option(method, drafts, model)),
            **{option: (value,) for option, value in said.items() if value is not None},
        }

    @property
    def weight_bits(self) -> int | None:
        """Return the bits of a weight.

        Under a quantisation chosen at the start the width is unknown, but 8 at most.
        """
        if self.settings.get("quantization") is not None and (
            self.shape is None or self.shape.weight_bits in {None, 16}
        ):
            return 8
        if self.shape is not None:
            return self.shape.weight_bits
        return None

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return what the server says of itself in development mode or in its log.

        Keys are those of `identity.settings`.
        """
        found = self.facts.get("settings")
        return found if isinstance(found, Mapping) else {}


def servers(
    arms: Sequence[ArmRow], fingerprints: Sequence[FingerprintRow]
) -> tuple[ArmServer, ...]:
    """Describe the arms of a run in their order."""
    told: dict[str, dict[object, dict[str, Any]]] = defaultdict(dict)
    for each in fingerprints:
        said = json.loads(each.facts)
        told[each.arm].pop(said.get("process_start_s"), None)  # the latest report goes to the end
        told[each.arm][said.get("process_start_s")] = said
    return tuple(
        ArmServer(
            **{name: getattr(row, name) for name in _AS_STORED},
            expected=json.loads(row.expected or "{}"),
            facts=next(reversed(told[row.arm].values()), {}),
            starts=tuple(told[row.arm].values()),
            shape=None if row.shape is None else msgspec.json.decode(row.shape, type=ModelShape),
        )
        for row in arms
    )


def speculative_option(
    method: str, drafts: int | None, model: str | None = None
) -> dict[str, tuple[str, ...]]:
    """Return the option that has a server draft like this."""
    # vLLM names the method as the model where it drafts from the prompt.
    own = None if model == method else model
    said = {"method": method, "num_speculative_tokens": drafts, "model": own}
    config = {name: value for name, value in said.items() if value is not None}
    return {"--speculative-config": (json.dumps(config),)}


def text(value: object) -> str | None:
    """Return a text; None for a value that means nothing."""
    if value in (None, "", "None"):
        return None
    return str(value)


def number(value: object) -> float | None:
    """Return a number, also one that is written as text."""
    try:
        if value in (None, "None"):
            return None
        return float(str(value))
    except ValueError:
        return None


def count(value: object) -> int | None:
    """Return a whole number."""
    found = number(value)
    return None if found is None else round(found)


def truth(value: object) -> bool | None:
    """Return a truth value, also one that is written as text."""
    return {"true": True, "false": False}.get(str(value).lower())


def names(value: object) -> tuple[str, ...]:
    """Read a list of layers, also one that Python printed into a label."""
    found = value if isinstance(value, list) else re.findall(r"[\w.]+", str(value))
    return tuple(str(name) for name in found if str(name) != "None")
