"""Decide between KV-cache configurations on a real vLLM, without a GPU: two random models, every arm started in turn, a report each.

A model of llama's shape and one of gpt_oss's, 12 layers and 1,024 wide, are served as BF16, FP8 and, where there are windows, FP8 that
skips them. A RAG and a reasoning trace are replayed and contexts from 512 tokens to the window are swept, on servers that take turns and
are started several times. What is measured is real; what the models say is not.

    AGENTLOAD_VLLM=/path/to/bin/vllm python benchmarks/real_vllm/demo.py

It stops what takes too long (--minutes) and decides on what is there. Run again, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb
import yaml

from agentload.model.apart import CONTEXT_SWEEP
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
    "fp8-skip-sw": ((*FP8, "--kv-cache-dtype-skip-layers", "sliding_window"), {"kv_cache_dtype": "fp8", "skip_layers": ["sliding_window"]}),
}
MODELS = {"llama": ("bf16", "fp8"), "gpt_oss": ("bf16", "fp8", "fp8-skip-sw")}
# vLLM speaks Harmony with whatever calls itself gpt_oss; a small vocabulary has not its tokens.
FLAGS = {"gpt_oss": ("--hf-overrides", '{"model_type": "gpt_oss_plain"}')}
# No network at run time; /server_info open.
ENV = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_SERVER_DEV_MODE": "1"}
# What a random model says most often, over and over, would be taken for a broken cache: it draws instead. Without a seed, of which the
# CPU build of 0.32.0 dies when a prompt is prefilled in several steps.
DRAWN = {"temperature": 1.0, "seed": None}
DRAIN_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    hidden: int
    layers: int
    pairs: int
    restarts: int
    """Of each server in the replay; a sweep has one for every pair."""
    sweeps: int
    contexts: str
    output: int
    rag: tuple[str, ...]
    reasoning: tuple[str, ...]


FULL = Size(
    hidden=1024,
    layers=12,
    pairs=3,
    restarts=3,
    sweeps=3,  # one prompt of 8k takes half a minute on the one core that vLLM leaves its worker of two
    contexts="512..8k",
    output=32,
    # Prompts of 1k to 4k, where a prompt of this model costs seconds and the dtype shows; answers of up to a thousand tokens.
    rag=("sessions=4", "documents=0", "passages=12", "--ctx-scale", "0.8"),
    reasoning=("sessions=5", "--ctx-scale", "0.08"),
)
QUICK = Size(
    hidden=256,
    layers=4,
    pairs=4,
    restarts=2,
    sweeps=2,
    contexts="512..2k",
    output=16,
    rag=("sessions=4", "documents=0", "--ctx-scale", "0.2"),
    reasoning=("sessions=4", "--ctx-scale", "0.05"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("reports/vllm"), help="folder for the reports")
    parser.add_argument("--work", type=Path, default=Path("build/demo-vllm"), help="folder for models, logs and databases")
    parser.add_argument("--minutes", type=float, default=45.0, help="what takes longer is stopped, and decided on as it is")
    parser.add_argument("--quick", action="store_true", help="tiny models and two pairs: does it work?")
    parser.add_argument("--aa", action="store_true", help="play a control of BF16 as well: the noise floor, for a fifth more time")
    parser.add_argument("--models", default=",".join(MODELS), help="llama,gpt_oss")
    given = parser.parse_args()
    vllm = os.environ.get("AGENTLOAD_VLLM")
    if not vllm or not os.access(vllm, os.X_OK):
        sys.exit(
            "error: AGENTLOAD_VLLM names no vllm executable\nhint: AGENTLOAD_VLLM=/path/to/bin/vllm make demo-vllm (its CPU build will do)"
        )
    size = QUICK if given.quick else FULL
    names = given.models.split(",")
    began = time.monotonic()
    controls = int(given.aa)
    # A step takes as long as it has arms.
    shares = [len(MODELS[name]) + beside for name in names for beside in (controls, 0)]
    untils = (began + 60 * given.minutes * sum(shares[: place + 1]) / sum(shares) for place in range(len(shares)))
    for name in names:
        _replay(name, given.work, size, vllm=vllm, until=next(untils), controls=controls)
        _sweep(name, given.work, size, vllm=vllm, until=next(untils))
        _report(name, given.work, given.out)
    print(f"\n{(time.monotonic() - began) / 60:.0f} minutes; reports in {given.out}")


def _replay(name: str, work: Path, size: Size, *, vllm: str, until: float, controls: int) -> None:
    endpoints = _arms_file(name, work, size, vllm)
    traces = [_trace(workload, options, work) for workload, options in (("rag", size.rag), ("reasoning", size.reasoning))]
    command = ["replay", *traces, "--endpoints", endpoints, "--launch", "--pairs", str(size.pairs), "--restarts", str(size.restarts)]
    command += ["--sessions", "2", "--wait-cap", "user=0.5", *(["--aa", "bf16"] if controls else [])]
    command += ["--logs", str(work / name / "logs"), "--db", str(_database(name, work))]
    run, left = _run_and_left(name, work, size, is_sweep=False, arms=len(MODELS[name]) + controls)
    if left:
        _agentload([*command, *(["--resume", run] if run else [])], until=until)


def _sweep(name: str, work: Path, size: Size, *, vllm: str, until: float) -> None:
    run, left = _run_and_left(name, work, size, is_sweep=True, arms=len(MODELS[name]))
    if left and run:
        command = ["sweep", "--context", size.contexts, "--output", str(size.output), "--pairs", str(left), "--into", run, "--launch"]
        command += ["--endpoints", _arms_file(name, work, size, vllm), "--logs", str(work / name / "logs-sweep")]
        _agentload([*command, "--db", str(_database(name, work))], until=until)


def _report(name: str, work: Path, out: Path) -> None:
    if not _database(name, work).exists():
        print(f"{name}: no pair of blocks was finished in its time; give it more --minutes, or a machine that is idle")
        return
    with duckdb.connect(str(_database(name, work))) as connection:  # kept as an example: whose machine it was is nobody's business
        connection.execute("UPDATE legs SET host = 'one machine'")
    _agentload(["report", str(_database(name, work)), "-o", str(out / name)], until=time.monotonic() + 120)


def _run_and_left(name: str, work: Path, size: Size, *, is_sweep: bool, arms: int) -> tuple[str | None, int]:
    """Return the run of a model, and how many pairs of it are still to be played."""
    database, wanted = _database(name, work), size.sweeps if is_sweep else size.pairs
    if not database.exists():
        return None, wanted
    with reading(database) as connection:
        runs = connection.execute("SELECT run_id FROM runs").fetchall()
        found = connection.execute(
            """
            SELECT count(DISTINCT pair) FROM blocks AS b WHERE void IS NULL AND ? = EXISTS (
                FROM calls_row AS c WHERE (c.run_id, c.pair, c.workload) = (b.run_id, b.pair, ?)
            ) AND (SELECT count(DISTINCT arm) FROM blocks AS o WHERE (o.pair, o.salt) = (b.pair, b.salt) AND o.void IS NULL) >= ?
            """,
            [is_sweep, CONTEXT_SWEEP, arms],
        ).fetchall()
    return (runs[0][0] if runs else None), max(0, wanted - found[0][0])


def _arms_file(name: str, work: Path, size: Size, vllm: str) -> str:
    weights = work / name / "model"
    if not (weights / "generation_config.json").exists():
        print(f"{name}: making the model", flush=True)
        words = work / "words.txt"
        weights.parent.mkdir(parents=True, exist_ok=True)
        words.write_text(" ".join(WORDS))
        maker = [Path(vllm).with_name("python"), HERE / "random_model.py", weights, name, words]
        subprocess.run([*maker, "--hidden", str(size.hidden), "--layers", str(size.layers)], check=True, capture_output=True)
    common = ["--served-model-name", f"random-{name}", "--host", "127.0.0.1", "--enforce-eager", "--enable-prompt-tokens-details"]
    common += ["--max-model-len", str(LENGTH), "--kv-cache-memory-bytes", "512M", *FLAGS.get(name, ())]
    arms = {}
    for place, arm in enumerate(MODELS[name]):
        flags, expect = ARMS[arm]
        port = str(PORT + place)
        arms[arm] = {
            "url": f"http://127.0.0.1:{port}/v1",
            "expect": {**expect, "prefix_caching": True, "max_model_len": LENGTH},
            "launch": {"command": [vllm, "serve", str(weights), *common, "--port", port, *flags], "env": ENV},
        }
    path = work / name / "endpoints.yaml"
    path.write_text(yaml.safe_dump({"model": f"random-{name}", "extra_body": DRAWN, "arms": arms}, sort_keys=False))
    return str(path)


def _trace(workload: str, options: tuple[str, ...], work: Path) -> str:
    path = work / f"{workload}.jsonl"
    if not path.exists():
        _agentload(["trace", "generate", workload, *options, "-o", str(path)], until=time.monotonic() + 60)
    return str(path)


def _database(name: str, work: Path) -> Path:
    return work / name / "demo.duckdb"


def _agentload(arguments: list[str], *, until: float) -> None:
    """Run a verb as it is typed; when its time is up, it is asked to stop, as by Ctrl-C, and keeps what it has."""
    print(f"\n$ agentload {' '.join(arguments)}", flush=True)
    with subprocess.Popen([AGENTLOAD, *arguments]) as process:
        try:
            code = process.wait(max(1.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            print("the time for this step is up: stopping it", flush=True)
            process.send_signal(signal.SIGINT)
            code = process.wait(DRAIN_S)
    if code not in {0, 130}:
        sys.exit(f"error: agentload {arguments[0]} ended with code {code}\nhint: run the line above by hand")


if __name__ == "__main__":
    main()
