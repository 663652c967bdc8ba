"""A single request on every shipped arm that has a
latency takes the time that its profile's formulas say.
"""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from agentload.builtin import find, names
from agentload.emulator.calls import EngineRequest, Finished
from agentload.emulator.engine import Engine
from agentload.emulator.profile import parse
from agentload.emulator.steptime import off
from agentload.model.profile import ArmProfile

ARMS = [
    off(arm)
    for name in names("profiles")
    for arm in parse(find("profiles", name).read_text(), name=name).arms
    if arm.step is not None and arm.speculation is None
]
LENGTHS = (1_000, 4_000, 16_000, 32_000, 64_000, 125_000, 128_000)


def ttft_ms(arm: ArmProfile, tokens: int) -> float:
    """Host time and GEMMs in proportion to the prompt, attention
    to its square, and what every chunk's step has besides.
    """
    step = arm.step
    assert step
    steps = ceil(tokens / arm.server.max_num_batched_tokens)
    return (
        step.host_ms_per_token * tokens
        + step.prefill_ms_per_token * tokens
        + step.prefill_ms_per_pair / 2 * tokens**2
        + steps * (step.decode_ms - step.weights_ms)
    )


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: f"{arm.profile}/{arm.name}")
def test_ttft_and_itl_of_a_single_request_are_those_of_the_formulas_within_one_percent(
    arm: ArmProfile,
) -> None:
    assert arm.step
    for tokens in (length for length in LENGTHS if length + 128 <= arm.server.max_model_len):
        engine = Engine(arm)
        engine.submit(EngineRequest("a", (("text", tokens),), 128), 0)
        done: list[Finished] = []
        while (at := engine.next_ns()) is not None:
            done += [event for event in engine.advance(at) if isinstance(event, Finished)]
        measured = done[0].token_ns[0] / 1e6, float(np.median(np.diff(done[0].token_ns))) / 1e6
        itl_ms = arm.step.decode_ms + arm.step.decode_ms_per_token * tokens
        assert measured == pytest.approx((ttft_ms(arm, tokens), itl_ms), rel=0.01)
