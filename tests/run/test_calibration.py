from __future__ import annotations

import ast
import json
from collections import Counter

import pytest

from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.calibration import sampled, script


def said(tokens: int, key: str, *, text: str | None = None, role: str = "user") -> Segment:
    return Segment(role=role, tokens=tokens, key=key, text=text)  # type: ignore[arg-type]  # tests name roles freely


def trace(sessions: int = 10) -> Trace:
    header = Header(name="t", seed=3, prefixes={"P": (said(20, "sys", role="system"),)})
    turns = (Turn(add=(said(10, "a"),), output=5), Turn(add=(said(5, "b", role="assistant"), said(30, "c", text="real words")), output=5))
    return Trace(
        header=header, sessions=[Session(session=f"s{n}", workload="w", start_s=0.0, prefix="P", turns=turns) for n in range(sessions)]
    )


def test_every_call_has_the_same_chance_to_be_calibrated_on() -> None:
    assert (sampled(trace(), 50, seed=1).calls, len(sampled(trace(), 50, seed=1).contexts)) == (20, 20)
    drawn = Counter(
        sum(segment.tokens for segment in context) for seed in range(400) for context in sampled(trace(), 5, seed=seed).contexts
    )
    assert drawn.total() == 2000
    # Four standard errors of a share of a half among 2,000.
    assert drawn[30] / 2000 == pytest.approx(0.5, abs=0.045)


def test_prompts_keep_the_lengths_of_the_trace_and_the_words_that_it_kept() -> None:
    sample = sampled(trace(1), 9, seed=1)
    lines = [json.loads(line) for line in sample.lines()]
    assert [[message["role"] for message in line["messages"]] for line in lines] == [
        ["system", "user"],
        ["system", "user", "assistant", "user"],
    ]
    assert len(lines[0]["messages"][1]["content"].split()) == 10
    assert lines[1]["messages"][3]["content"].startswith("real words")
    assert (sample.longest, sample.literal_share) == (65, 30 / 95)
    assert list(sample.lines()) == list(sampled(trace(1), 9, seed=1).lines())


def test_the_script_is_python_that_names_model_prompts_and_lengths() -> None:
    text = script(sampled(trace(1), 9, seed=1), model="org/m", strategy="attn_head", prompts="p.jsonl", output="m-fp8", trace="mine")
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
    }
    assert constants == {"MODEL": "org/m", "PROMPTS": "p.jsonl", "OUTPUT": "m-fp8", "STRATEGY": "attn_head", "LONGEST": 65 + 512}
