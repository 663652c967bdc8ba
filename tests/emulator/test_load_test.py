from __future__ import annotations

import numpy as np
import pytest

from agentload.emulator.calls import Finished, FirstToken, Request
from agentload.emulator.engine import Engine
from agentload.model.profile import ArmProfile
from tests.emulator.arms import shipped


def closed_loop(of: ArmProfile, lengths: list[tuple[int, int]], clients: int) -> dict[str, float]:
    engine = Engine(of)
    sent: dict[str, int] = {}
    ttft, gaps = [], []
    last = 0
    todo = iter(enumerate(lengths))

    def send(at_ns: int) -> None:
        for index, (prompt, output) in todo:
            sent[str(index)] = at_ns
            engine.submit(Request(str(index), ((f"p{index}", prompt),), output), at_ns)
            return

    for _ in range(clients):
        send(0)
    while (at := engine.next_ns()) is not None:
        for event in engine.advance(at):
            match event:
                case FirstToken():
                    ttft.append(event.at_ns - sent[event.id])
                case Finished():
                    gaps.append(np.diff(event.token_ns))
                    last = event.at_ns
                    send(event.at_ns)
                case _:
                    raise AssertionError(event)
    tokens = sum(output for _, output in lengths)
    return {
        "ttft_ms": float(np.median(ttft)) / 1e6,
        "itl_ms": float(np.median(np.concatenate(gaps))) / 1e6,
        "output_tok_s": tokens / (last / 1e9),
    }


def recovered_requests() -> list[tuple[int, int]]:
    """The request list of the published load test: 150 requests, lengths within 15 % of 20,000 in and 2,000 out."""
    rng = np.random.default_rng(0)
    prompts = rng.integers(17_000, 23_001, 150)
    outputs = rng.integers(1_700, 2_301, 150)
    return list(zip(prompts.tolist(), outputs.tolist(), strict=True))


@pytest.mark.parametrize(
    ("profile", "name", "published"),
    [
        ("llama-3.1-8b-h100", "bf16", (763.6, 15.18, 450.3)),
        ("llama-3.1-8b-h100", "fp8", (742.8, 12.93, 517.5)),
        ("gpt-oss-20b-h100", "bf16", (468.9, 8.09, 831.6)),
        ("gpt-oss-20b-h100", "fp8", (451.7, 7.90, 853.0)),
        ("gpt-oss-20b-h100", "fp8-skip-sw", (456.4, 7.70, 871.8)),
    ],
)
def test_the_published_load_test_is_reproduced_within_three_percent(profile: str, name: str, published: tuple[float, ...]) -> None:
    measured = closed_loop(shipped(profile, name), recovered_requests(), 8)
    assert list(measured.values()) == [pytest.approx(value, rel=0.03) for value in published]
