"""Decide on a real vLLM, without a GPU: does FP8 pay for a RAG agent?

One `agentload decide`, within 45 minutes.

A model with random weights is served as BF16, FP8 and, where there are windows,
FP8 that skips them. `decide --launch` starts an arm for its blocks and ends it
before the next, as on a machine with one GPU, so that every pair has starts of
its own. What is measured is real; what the model says is not.

    AGENTLOAD_VLLM=/path/to/bin/vllm python -m benchmarks.real_vllm.demo

Run again, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import yaml

from agentload.prompts.words import WORDS
from agentload.store.database import reading

HERE = Path(__file__).parent
AGENTLOAD = Path(sys.executable).with_name("agentload")
LENGTH = 8192
PORT = 18_100
FP8 = ("--kv-cache-dtype", "fp8")
ARMS = {
    "bf16": (("--kv-cache-dtype", "bfloat16"), {"kv_cache_dtype": "bfloat16", "skip_layers": []}),
    "fp8": (FP8, {"kv_cache_dtype": "fp8", "skip_layers": []}),
    "fp8-skip-sw": (
        (*FP8, "--kv-cache-dtype-skip-layers", "sliding_window"),
        {"kv_cache_dtype": "fp8", "skip_layers": ["sliding_window"]},
    ),
}
MODELS = {"llama": ("bf16", "fp8"), "gpt_oss": ("bf16", "fp8", "fp8-skip-sw")}
# vLLM speaks Harmony with whatever calls itself gpt_oss; a small vocabulary has not its tokens.
FLAGS = {"gpt_oss": ("--hf-overrides", '{"model_type": "gpt_oss_plain"}')}
# No network at run time; /server_info open.
ENV = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_SERVER_DEV_MODE": "1",
}
# What a random model says most often, over and over, would be taken for a
# broken cache: it draws instead. Without a seed, of which the CPU build of
# 0.32.0 dies when a prompt is prefilled in several steps.
DRAWN = {"temperature": 1.0, "seed": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the model is, and what it is asked."""

    hidden: int
    layers: int
    trace: tuple[str, ...]


# Prompts of 7,000 tokens and answers of 25, one at a time: a turn is mostly the
# reading of its prompt, three seconds on two cores, and that is what FP8 slows.
RAG = ("rag", "sessions=60", "documents=0")
FULL = Size(hidden=512, layers=12, trace=(*RAG, "passages=260", "--ctx-scale", "0.1"))
QUICK = Size(hidden=256, layers=4, trace=(*RAG, "passages=26", "--ctx-scale", "0.1"))
LOAD = ("--sessions", "1", "--wait-cap", "user=0.5")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=Path("reports/vllm"), help="folder for the reports"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=Path("build/demo-vllm"),
        help="folder for models, logs and databases",
    )
    parser.add_argument(
        "--budget",
        default="40m",
        help="time that the decision may take, starts of servers included",
    )
    parser.add_argument("--quick", action="store_true", help="a tiny model: does it work?")
    parser.add_argument(
        "--models",
        type=lambda text: text.split(","),
        default=["llama"],
        help="llama,gpt_oss; a budget each",
    )
    given = parser.parse_args()
    if unknown := set(given.models) - MODELS.keys():
        parser.error(f"no model {min(unknown)!r}: {', '.join(MODELS)}")
    vllm = os.environ.get("AGENTLOAD_VLLM")
    if not vllm or not os.access(vllm, os.X_OK):
        sys.exit(
            "error: AGENTLOAD_VLLM names no vllm executable\nhint: "
            "AGENTLOAD_VLLM=/path/to/bin/vllm make demo-vllm (its CPU build will do)"
        )
    if not os.access(Path(vllm).with_name("python"), os.X_OK):
        sys.exit(f"error: no python beside {vllm}\nhint: name the vllm of a virtual environment")
    began = time.monotonic()
    for name in given.models:
        _decide(name, given.work, QUICK if given.quick else FULL, vllm, given.budget)
        _report(name, given.work, given.out)
    print(f"\n{(time.monotonic() - began) / 60:.0f} minutes; reports in {given.out}")


def _decide(name: str, work: Path, size: Size, vllm: str, budget: str) -> None:
    """Decide on a model's arms, or go on with what is decided in part."""
    endpoints, database = _arms_file(name, work, size, vllm), _database(name, work)
    trace = work / "rag.jsonl"
    if not trace.exists():
        _agentload(["trace", "generate", *size.trace, "-o", str(trace)])
    again: list[str] = []
    if database.exists():
        with reading(database) as connection:
            again = [
                each
                for (run,) in connection.execute("SELECT run_id FROM runs").fetchall()
                for each in ("--resume", run)
            ]
    logs = ["--launch", "--logs", str(work / name / "logs"), "-o", str(work / name / "report")]
    _agentload(
        [
            "decide",
            str(trace),
            "--endpoints",
            endpoints,
            *logs,
            *LOAD,
            "--budget",
            budget,
            "--db",
            str(database),
            *again,
        ]
    )


def _report(name: str, work: Path, out: Path) -> None:
    with duckdb.connect(
        str(_database(name, work))
    ) as connection:  # kept as an example: whose machine it was is nobody's business
        connection.execute("UPDATE legs SET host = 'one machine'")
    _agentload(["report", str(_database(name, work)), "-o", str(out / name)])


def _arms_file(name: str, work: Path, size: Size, vllm: str) -> str:
    weights = work / name / "model"
    if not (weights / "generation_config.json").exists():
        print(f"{name}: making the model", flush=True)
        words = work / "words.txt"
        weights.parent.mkdir(parents=True, exist_ok=True)
        words.write_text(" ".join(WORDS))
        maker: list[str | Path] = [
            Path(vllm).with_name("python"),
            HERE / "random_model.py",
            weights,
            name,
            words,
        ]
        made = subprocess.run(
            [*maker, "--hidden", str(size.hidden), "--layers", str(size.layers)],
            check=False,
            capture_output=True,
            text=True,
        )
        if made.returncode:
            sys.exit(
                f"error: no model was made\n{made.stderr}\nhint: it takes the packages of "
                "the python beside vllm"
            )
    common = [
        "--served-model-name",
        f"random-{name}",
        "--host",
        "127.0.0.1",
        "--enforce-eager",
        "--enable-prompt-tokens-details",
    ]
    common += [
        "--max-model-len",
        str(LENGTH),
        "--kv-cache-memory-bytes",
        "512M",
        *FLAGS.get(name, ()),
    ]
    arms = {}
    for place, arm in enumerate(MODELS[name]):
        flags, expect = ARMS[arm]
        port = str(PORT + place)
        arms[arm] = {
            "url": f"http://127.0.0.1:{port}/v1",
            "gpu": "CPU",
            "machine": "this one",
            "expect": {**expect, "prefix_caching": True, "max_model_len": LENGTH},
            "launch": {
                "command": [vllm, "serve", str(weights), *common, "--port", port, *flags],
                "env": ENV,
            },
        }
    path = work / name / "endpoints.yaml"
    path.write_text(
        yaml.safe_dump(
            {"model": f"random-{name}", "extra_body": DRAWN, "arms": arms}, sort_keys=False
        )
    )
    return str(path)


def _database(name: str, work: Path) -> Path:
    return work / name / "demo.duckdb"


def _agentload(arguments: list[str]) -> None:
    """Run a verb as it is typed."""
    print(f"\n$ agentload {' '.join(arguments)}", flush=True)
    code = subprocess.run([AGENTLOAD, *arguments], check=False).returncode
    if code:
        sys.exit(
            f"error: agentload {arguments[0]} ended with code {code}\nhint: run the line "
            "above by hand"
        )


if __name__ == "__main__":
    main()
