from __future__ import annotations

import ast
import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.prompts.words import WORDS
from agentload.run.calibration import Strategy, draw_sample, script

PYTHON = "AGENTLOAD_LLMCOMPRESSOR"
"""Names a Python that can import llmcompressor."""
MAKER = Path(__file__).parents[2] / "benchmarks" / "real_vllm" / "random_model.py"
SCALES = """
from safetensors import safe_open
with safe_open("out/model.safetensors", "pt") as file:
    print({name: file.get_tensor(name).flatten().tolist() for name in file.keys() if "scale" in name})
"""


def said(tokens: int, key: str, *, text: str | None = None, role: str = "user") -> Segment:
    # tests name roles freely
    return Segment(role=role, tokens=tokens, key=key, text=text)  # type: ignore[arg-type]


def trace(sessions: int = 10) -> Trace:
    header = Header(name="t", seed=3, prefixes={"P": (said(20, "sys", role="system"),)})
    turns = (
        Turn(add=(said(10, "a"),), output=5),
        Turn(add=(said(5, "b", role="assistant"), said(30, "c", text="real words")), output=5),
    )
    return Trace(
        header=header,
        sessions=[
            Session(session=f"s{n}", workload="w", start_s=0.0, prefix="P", turns=turns)
            for n in range(sessions)
        ],
    )


def test_every_call_has_the_same_chance_to_be_calibrated_on() -> None:
    assert (
        draw_sample(trace(), 50, seed=1).calls,
        len(draw_sample(trace(), 50, seed=1).contexts),
    ) == (20, 20)
    drawn = Counter(
        sum(segment.tokens for segment in context)
        for seed in range(400)
        for context in draw_sample(trace(), 5, seed=seed).contexts
    )
    assert drawn.total() == 2000
    # Four standard errors of a share of a half among 2,000.
    assert drawn[30] / 2000 == pytest.approx(0.5, abs=0.045)


def test_prompts_keep_the_lengths_of_the_trace_and_the_words_that_it_kept() -> None:
    sample = draw_sample(trace(1), 9, seed=1)
    lines = [json.loads(line) for line in sample.lines()]
    assert [[message["role"] for message in line["messages"]] for line in lines] == [
        ["system", "user"],
        ["system", "user", "assistant", "user"],
    ]
    assert len(lines[0]["messages"][1]["content"].split()) == 10
    assert lines[1]["messages"][3]["content"].startswith("real words")
    assert (sample.longest, sample.literal_share) == (65, 30 / 95)
    assert list(sample.lines()) == list(draw_sample(trace(1), 9, seed=1).lines())


def test_the_script_is_python_that_names_model_prompts_and_lengths() -> None:
    text = script(
        draw_sample(trace(1), 9, seed=1),
        model="org/m",
        strategy="attn_head",
        prompts="p.jsonl",
        output="m-fp8",
        trace="mine",
    )
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id.isupper()
    }
    assert constants == {
        "MODEL": "org/m",
        "PROMPTS": "p.jsonl",
        "OUTPUT": "m-fp8",
        "STRATEGY": "attn_head",
        "LONGEST": 65 + 512,
    }


@pytest.mark.slow
@pytest.mark.skipif(
    PYTHON not in os.environ, reason=f"{PYTHON} does not name a Python with llm-compressor"
)
@pytest.mark.parametrize(("strategy", "each"), [("tensor", 1), ("attn_head", 2)])
def test_the_script_gives_every_layer_scales_of_keys_and_values_and_of_nothing_else(
    tmp_path: Path, strategy: Strategy, each: int
) -> None:
    def python(*arguments: str) -> str:
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
        return subprocess.run(
            [os.environ[PYTHON], *arguments],
            cwd=tmp_path,
            env=env,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    sample = draw_sample(trace(2), 3, seed=1)
    (tmp_path / "words.txt").write_text(" ".join(WORDS), encoding="utf-8")
    (tmp_path / "prompts.jsonl").write_bytes(b"".join(sample.lines()))
    text = script(
        sample, model="tiny", strategy=strategy, prompts="prompts.jsonl", output="out", trace="mine"
    )
    (tmp_path / "calibrate.py").write_text(text, encoding="utf-8")
    python(str(MAKER), "tiny", "llama", "words.txt", "--layers", "2")
    python("calibrate.py")
    scales = ast.literal_eval(python("-c", SCALES))
    assert set(scales) == {
        f"model.layers.{layer}.self_attn.{of}_scale" for layer in range(2) for of in "kv"
    }
    assert all(
        len(values) == each and all(0.001 < value < 1 for value in values)
        for values in scales.values()
    )
    described = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))[
        "quantization_config"
    ]
    assert (described["kv_cache_scheme"]["strategy"], described["kv_cache_scheme"]["num_bits"]) == (
        strategy,
        8,
    )
