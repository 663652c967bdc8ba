"""Decide between KV-cache configurations on a real vLLM, without a GPU: two random models, all their arms started again and again.

A model of llama's shape and one of gpt_oss's, 12 layers and 1,024 wide, are served as BF16, FP8 and, where there are windows, FP8 that
skips them, side by side: a server that is idle takes no CPU, and starting one takes half a minute. On each set of servers
a RAG and a reasoning trace are replayed once on every arm and contexts from 512 tokens to the window are swept; then the set is ended and
started anew. What is measured is real; what the models say is not.

    AGENTLOAD_VLLM=/path/to/bin/vllm python benchmarks/real_vllm/demo.py

It begins no set for which its time (--minutes) is too short, and decides on what is there. Run again, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import yaml

from agentload.prompts.words import WORDS
from agentload.run.past import FIRST as BESIDE
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
STOP_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured."""

    hidden: int
    layers: int
    sets: int
    """How often the servers are started; each start is a pair of blocks, and a pair of the sweep."""
    contexts: str
    output: int
    rag: tuple[str, ...]
    reasoning: tuple[str, ...]


FULL = Size(
    hidden=1024,
    layers=12,
    sets=3,
    contexts="512..8k",  # a prompt of 8k takes half a minute on the one core that vLLM leaves its worker of two
    output=128,  # calls of a second scatter by a sixth from one to the next on such a machine
    # Prompts of 1k to 4k, where a prompt of this model costs seconds and the dtype shows, and short ones with answers of hundreds.
    rag=("sessions=2", "documents=0", "passages=12", "--ctx-scale", "0.7", "--seed", "3"),
    reasoning=("sessions=2", "--ctx-scale", "0.2", "--seed", "3"),
)
QUICK = Size(
    hidden=256,
    layers=4,
    sets=3,
    contexts="512..2k",
    output=16,
    rag=("sessions=2", "documents=0", "--ctx-scale", "0.2"),
    reasoning=("sessions=2", "--ctx-scale", "0.05"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("reports/vllm"), help="folder for the reports")
    parser.add_argument("--work", type=Path, default=Path("build/demo-vllm"), help="folder for models, logs and databases")
    parser.add_argument("--minutes", type=float, default=45.0, help="no set of servers is begun that would last longer")
    parser.add_argument("--quick", action="store_true", help="tiny models: does it work?")
    parser.add_argument("--no-aa", action="store_true", help="play no control of BF16: less time, and no noise floor")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS), help="llama,gpt_oss")
    given = parser.parse_args()
    if unknown := set(given.models) - MODELS.keys():
        parser.error(f"no model {min(unknown)!r}: {', '.join(MODELS)}")
    vllm = os.environ.get("AGENTLOAD_VLLM")
    if not vllm or not os.access(vllm, os.X_OK):
        sys.exit(
            "error: AGENTLOAD_VLLM names no vllm executable\nhint: AGENTLOAD_VLLM=/path/to/bin/vllm make demo-vllm (its CPU build will do)"
        )
    if not os.access(Path(vllm).with_name("python"), os.X_OK):
        sys.exit(f"error: no python beside {vllm}\nhint: name the vllm of a virtual environment")
    size = QUICK if given.quick else FULL
    models = [Model(name=name, work=given.work, size=size, vllm=vllm, has_control=not given.no_aa) for name in given.models]
    began = time.monotonic()
    longest_s = dict.fromkeys(models, 0.0)
    for _ in range(size.sets):
        for model in models:  # in turn, so that each has what the time allows
            since = time.monotonic()
            if since + longest_s[model] <= began + 60 * given.minutes:
                _one_set_more(model)
            longest_s[model] = max(longest_s[model], time.monotonic() - since)
    for model in models:
        _report(model.name, given.work, given.out)
    print(f"\n{(time.monotonic() - began) / 60:.0f} minutes; reports in {given.out}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model, and where what is measured of it goes."""

    name: str
    work: Path
    size: Size
    vllm: str
    has_control: bool

    @property
    def database(self) -> Path:
        """Return where its calls are stored."""
        return _database(self.name, self.work)

    def played(self) -> tuple[str | None, int, int]:
        """Return its run, and how many whole pairs were played of the replay and of the sweep."""
        if not self.database.exists():
            return None, 0, 0
        arms = len(MODELS[self.name])
        with reading(self.database) as connection:
            runs = connection.execute("SELECT run_id FROM runs").fetchall()
            whole = connection.execute(
                """
                SELECT pair FROM blocks WHERE void IS NULL AND ended_ns IS NOT NULL GROUP BY run_id, pair, salt
                HAVING count(DISTINCT arm) >= if(pair < ?, ?, ?)
                """,
                [BESIDE, arms + self.has_control, arms],
            ).fetchall()
        pairs = {pair for (pair,) in whole}
        swept = sum(pair >= BESIDE for pair in pairs)
        return (runs[0][0] if runs else None), len(pairs) - swept, swept


def _one_set_more(model: Model) -> None:
    """Start a model's servers, play what a set is, and end them; nothing where all of it was played."""
    size, endpoints = model.size, _arms_file(model.name, model.work, model.size, model.vllm)
    traces = [_trace(workload, options, model.work) for workload, options in (("rag", size.rag), ("reasoning", size.reasoning))]
    run, replayed, swept = model.played()
    if min(replayed, swept) >= size.sets:
        return
    with _servers(endpoints, model.work / model.name / "logs"):
        common = ["--endpoints", endpoints, "--db", str(model.database)]
        if replayed < size.sets:
            control = ["--aa", "bf16"] if model.has_control else []
            again = ["--resume", run] if run else []
            wanted = ["--pairs", str(replayed + 1), "--sessions", "2", "--wait-cap", "user=0.5"]
            _agentload(["replay", *traces, *common, *wanted, *control, *again])
        run, _, _ = model.played()
        if swept < size.sets and run:
            wanted = ["--context", size.contexts, "--output", str(size.output), "--pairs", "1", "--into", run]
            _agentload(["sweep", *common, *wanted])


@contextmanager
def _servers(endpoints: str, logs: Path) -> Iterator[None]:
    command = [str(AGENTLOAD), "launch", endpoints, "--logs", str(logs)]
    print(f"\n$ agentload {' '.join(command[1:])} &", flush=True)
    # A group of its own: Ctrl-C is ours to pass on, once.
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                print(line, end="", flush=True)
                if line.startswith("ready"):
                    break
            else:
                sys.exit("error: the servers did not start")
            yield
        finally:
            process.terminate()  # not SIGINT, which shells have their background jobs ignore
            process.communicate(timeout=STOP_S)


def _report(name: str, work: Path, out: Path) -> None:
    if not _database(name, work).exists():
        print(f"{name}: no pair of blocks was finished in its time; give it more --minutes, or a machine that is idle")
        return
    with duckdb.connect(str(_database(name, work))) as connection:  # kept as an example: whose machine it was is nobody's business
        connection.execute("UPDATE legs SET host = 'one machine'")
    _agentload(["report", str(_database(name, work)), "-o", str(out / name)])


def _arms_file(name: str, work: Path, size: Size, vllm: str) -> str:
    weights = work / name / "model"
    if not (weights / "generation_config.json").exists():
        print(f"{name}: making the model", flush=True)
        words = work / "words.txt"
        weights.parent.mkdir(parents=True, exist_ok=True)
        words.write_text(" ".join(WORDS))
        maker: list[str | Path] = [Path(vllm).with_name("python"), HERE / "random_model.py", weights, name, words]
        made = subprocess.run(
            [*maker, "--hidden", str(size.hidden), "--layers", str(size.layers)], check=False, capture_output=True, text=True
        )
        if made.returncode:
            sys.exit(f"error: no model was made\n{made.stderr}\nhint: it takes the packages of the python beside vllm")
    common = ["--served-model-name", f"random-{name}", "--host", "127.0.0.1", "--enforce-eager", "--enable-prompt-tokens-details"]
    common += ["--max-model-len", str(LENGTH), "--kv-cache-memory-bytes", "512M", *FLAGS.get(name, ())]
    arms = {}
    for place, arm in enumerate(MODELS[name]):
        flags, expect = ARMS[arm]
        port = str(PORT + place)
        arms[arm] = {
            "url": f"http://127.0.0.1:{port}/v1",
            "gpu": "CPU",
            "machine": "this one",
            "expect": {**expect, "prefix_caching": True, "max_model_len": LENGTH},
            "launch": {"command": [vllm, "serve", str(weights), *common, "--port", port, *flags], "env": ENV},
        }
    path = work / name / "endpoints.yaml"
    path.write_text(yaml.safe_dump({"model": f"random-{name}", "extra_body": DRAWN, "arms": arms}, sort_keys=False))
    return str(path)


def _trace(workload: str, options: tuple[str, ...], work: Path) -> str:
    path = work / f"{workload}.jsonl"
    if not path.exists():
        _agentload(["trace", "generate", workload, *options, "-o", str(path)])
    return str(path)


def _database(name: str, work: Path) -> Path:
    return work / name / "demo.duckdb"


def _agentload(arguments: list[str]) -> None:
    """Run a verb as it is typed."""
    print(f"\n$ agentload {' '.join(arguments)}", flush=True)
    code = subprocess.run([AGENTLOAD, *arguments], check=False).returncode
    if code:
        sys.exit(f"error: agentload {arguments[0]} ended with code {code}\nhint: run the line above by hand")


if __name__ == "__main__":
    main()
