"""A real vLLM for tests: small random models, an arms file for each, servers by `agentload launch`'s own code."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from agentload.endpoints.arms_file import read_file
from agentload.endpoints.endpoint import Endpoint
from agentload.prompts.words import WORDS

VARIABLE: Final = "AGENTLOAD_VLLM"
MAKER: Final = Path(__file__).parents[2] / "benchmarks" / "real_vllm" / "random_model.py"
LENGTH: Final = 8192
# No network at run time; /server_info open; few threads, because the client shares the machine.
ENV: Final = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_SERVER_DEV_MODE": "1"}
FP8: Final = ("--kv-cache-dtype", "fp8")
SKIP: Final = (*FP8, "--kv-cache-dtype-skip-layers", "sliding_window")
WAYS: Final[Mapping[str, tuple[tuple[str, ...], Mapping[str, object]]]] = {
    "bf16": (("--kv-cache-dtype", "bfloat16"), {"kv_cache_dtype": "bfloat16", "skip_layers": []}),
    "fp8": (FP8, {"kv_cache_dtype": "fp8", "skip_layers": []}),
    "fp8-skip-sw": (SKIP, {"kv_cache_dtype": "fp8", "skip_layers": ["sliding_window"]}),
}


def missing() -> str | None:
    """Return why no vLLM can be tested here; None where it can."""
    named = os.environ.get(VARIABLE)
    if not named:
        return f"{VARIABLE} does not name a vllm executable"
    return None if os.access(named, os.X_OK) else f"{VARIABLE}: {named} is no executable"


def executable() -> Path:
    """Return the vllm executable."""
    return Path(os.environ[VARIABLE])


def model(folder: Path, shape: str) -> Path:
    """Make a small model of a shape, once a folder."""
    out = folder / shape
    if not (out / "generation_config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "words.txt").write_text(" ".join(WORDS))
        python = executable().with_name("python")
        subprocess.run([python, MAKER, out, shape, folder / "words.txt"], check=True, capture_output=True, timeout=180)
    return out


def arms(path: Path, weights: Path, ways: Sequence[str], *flags: str, memory: str = "64M", length: int = LENGTH) -> tuple[Endpoint, ...]:
    """Write an arms file for the weights and read it back."""
    entries = {}
    for way in ways:
        own, expect = WAYS[way]
        port = _free_port()
        command = [str(executable()), "serve", str(weights), "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--enforce-eager", "--enable-prompt-tokens-details", "--max-model-len", str(length), "--kv-cache-memory-bytes", memory]
        entries[way] = {
            "url": f"http://127.0.0.1:{port}/v1",
            "log": str(path.parent / f"{way}.log"),
            "expect": {**expect, "prefix_caching": True, "max_model_len": length},
            "launch": {"command": [*command, *own, *flags], "env": ENV},
        }
    path.write_text(yaml.safe_dump({"model": "tiny", "arms": entries}, sort_keys=False))
    return read_file(path)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
