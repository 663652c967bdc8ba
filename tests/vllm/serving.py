"""A real vLLM for tests: small random models, an arms
file for each, servers by `agentload launch`'s own code.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
import yaml
import zstandard

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.read import read_file
from agentload.prompts.words import WORDS

VARIABLE: Final = "AGENTLOAD_VLLM"
KEPT: Final = "AGENTLOAD_VLLM_REPORT"
"""Folder for the report of the three arms, to be kept as an example."""
MAKER: Final = Path(__file__).parents[2] / "benchmarks" / "real_vllm" / "random_model.py"
LENGTH: Final = 8192
IDLE_S: Final = 5.0
ENDED_S: Final = 120.0
AGENTLOAD: Final = Path(sys.executable).with_name("agentload")
# No network at run time; /server_info open; few threads, because the client shares the machine.
ENV: Final = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_SERVER_DEV_MODE": "1",
}
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
        subprocess.run(
            [python, MAKER, out, shape, folder / "words.txt"],
            check=True,
            capture_output=True,
            timeout=180,
        )
    return out


def arms(
    path: Path,
    weights: Path,
    ways: Sequence[str],
    *flags: str,
    memory: str = "64M",
    length: int = LENGTH,
) -> tuple[Endpoint, ...]:
    """Write an arms file for the weights and read it back."""
    entries = {}
    for way in ways:
        own, expect = WAYS[way]
        port = _free_port()
        command = [
            str(executable()),
            "serve",
            str(weights),
            "--served-model-name",
            "tiny",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        command += [
            "--enforce-eager",
            "--enable-prompt-tokens-details",
            "--max-model-len",
            str(length),
            "--kv-cache-memory-bytes",
            memory,
        ]
        entries[way] = {
            "url": f"http://127.0.0.1:{port}/v1",
            "log": str(path.parent / f"{way}.log"),
            "expect": {**expect, "prefix_caching": True, "max_model_len": length},
            "launch": {"command": [*command, *own, *flags], "env": ENV},
        }
    path.write_text(yaml.safe_dump({"model": "tiny", "arms": entries}, sort_keys=False))
    return read_file(path)


@contextmanager
def launched_by_the_verb(file: Path) -> Iterator[None]:
    """Run `agentload launch` on an arms file until the
    block ends; it must have ended every server then.
    """
    command = [str(AGENTLOAD), "launch", str(file), "--logs", str(file.parent)]
    said: list[str] = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                said.append(line)
                if line.startswith("ready"):
                    break
            else:
                pytest.fail("".join(said))
            yield
        finally:
            process.terminate()
            said.append(process.communicate(timeout=ENDED_S)[1])
    arms = [arm.name for arm in read_file(file)]
    assert [
        arm
        for arm in arms
        if not any(line.startswith(f"{arm}: stopped") for line in "".join(said).splitlines())
    ] == []
    assert "its first calls will be its first" not in "".join(said)


def typed(folder: Path, *arguments: str) -> None:
    """Run a verb as it is typed in a folder."""
    subprocess.run([AGENTLOAD, *arguments], cwd=folder, check=True, timeout=600)


def kept_bytes(log: Path) -> tuple[str, int]:
    """Return the bytes that the one call of a raw log brought, and when the last of them came."""
    text = (
        zstandard.ZstdDecompressor()
        .stream_reader(io.BytesIO(log.read_bytes()), read_across_frames=True)
        .read()
    )
    (line,) = (json.loads(each) for each in text.splitlines())
    return line["raw"], line["reads"][-1][0]


def fates(raw: str, *, silent_s: float) -> frozenset[str]:
    """Say by its bytes alone how a stream that was cut short may have ended."""
    if '"error"' in raw:
        return frozenset({"stream_error"})
    if "[DONE]" in raw:
        return frozenset({"short"})
    # Bytes do not tell an end of the connection from a break.
    cut = {"idle_timeout"} if silent_s >= 0.99 * IDLE_S else {"truncated", "reset"}
    return frozenset(cut | ({"short"} if '"finish_reason":"abort"' in raw else set()))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
