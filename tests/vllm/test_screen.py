"""A screen of real servers: the reference stays within its own
scatter, FP8 does not, and which path reads the stored cache.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from advisor.statistics.screen import screening
from agentload.ask.likely import Likely, Scorer, agrees, longest_list, variation
from agentload.ask.screening import Passage, ScreenRun
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.launch import run_servers
from agentload.evidence.screen import read
from agentload.layout.passages import random_passages
from agentload.run.screen import _passage
from tests.vllm.serving import arms, missing, model

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.loopback,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.filterwarnings("default"),
]
LENGTH = 2048
QUICK_S = 10.0
"""Of server time: so long may it take until FP8 is seen to differ."""


def test_fp8_is_outside_the_scatter_of_its_reference_and_a_scored_prompt_reads_no_cache(
    tmp_path: Path,
) -> None:
    weights = model(tmp_path / "models", "llama")
    found = arms(tmp_path / "arms.yaml", weights, ("bf16", "fp8"))
    with run_servers(found, logs=tmp_path, start_s=600.0):
        asyncio.run(_screened(found))


async def _screened(found: tuple[Endpoint, ...]) -> None:
    bf16, fp8 = found
    subject = random_passages((LENGTH,), seed=1)
    passages = [
        await asyncio.to_thread(_passage, subject, number, bf16, "tiny", LENGTH)
        for number in range(len(subject.contexts))
    ]
    async with Scorer(bf16, "tiny") as one, Scorer(fp8, "tiny") as other:
        assert await longest_list(one, passages[0].cut("a", 64)) == 20
        screen = ScreenRun(
            run="r",
            at_ns=0,
            reference="bf16",
            passages=passages,
            lengths=(LENGTH,),
            block=16,
            listener=lambda _: None,
        )
        await screen.ask({"bf16": one, "fp8": other})
        same = ScreenRun(
            run="r",
            at_ns=0,
            reference="bf16",
            passages=passages,
            lengths=(LENGTH,),
            block=16,
            listener=lambda _: None,
        )
        await same.ask({"bf16": one, "again": one})
        await _quickly(passages[0], one, other)
    rows = read(screen.rows)
    assert {row.prompt for row in rows} == set(range(8))
    assert all(
        row.cached is not None and row.cached > 0.9 for row in rows
    )  # single tokens read the stored cache
    assert any(max(row.own) > 0 for row in rows)  # another salt moves something, on a CPU too
    outside, inside = screening(rows, alpha=0.05), screening(read(same.rows), alpha=0.05)
    assert inside.pattern == "inside"
    assert outside.lengths[0].p is not None
    assert outside.lengths[0].p <= 0.05
    scored = [
        row
        for row in screen.rows
        if '"path": "prompt"' in row.settings and row.outcome == "compared"
    ]
    assert all('"cached": 0.0' in (row.detail or "") for row in scored)


async def _quickly(passage: Passage, one: Scorer, other: Scorer) -> None:
    """See within seconds that the caches differ: a few tokens behind one cached prefix."""
    began = time.monotonic()
    apart, same = [], []
    for tokens in range(LENGTH - 16 * 8 + 1, LENGTH, 16):
        prompt = passage.cut("a", tokens // 16 * 16 + 1)
        mine, again, theirs = (
            await one.behind(prompt, most=20),
            await one.behind(prompt, most=20),
            await other.behind(prompt, most=20),
        )
        assert isinstance(mine, Likely)
        assert isinstance(again, Likely)
        assert isinstance(theirs, Likely)
        apart.append(variation(mine.listed, theirs.listed))
        same.append(variation(mine.listed, again.listed))
        assert agrees(mine.listed, again.listed)
    assert time.monotonic() - began < QUICK_S
    assert max(same) < min(apart)
