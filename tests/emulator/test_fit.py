from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from agentload.emulator.calls import EngineRequest, Finished
from agentload.emulator.engine import Engine
from agentload.emulator.fit import Observed, fit
from agentload.errors import ProfileError
from agentload.model.profile import ArmProfile, Noise
from tests.emulator.arms import shipped

NOISE = Noise(sigma=0.01, phi=0.6, tail_share=0.01, tail_ms=20)


def measured(arm: ArmProfile, *, clients: int, calls: int, pause_s: float) -> Observed:
    """Play agents whose contexts grow, so that prompts
    are partly cached, and note what a client would.
    """
    engine = Engine(arm, seed=5)
    rng = Random(1)
    content: dict[int, tuple[tuple[str, int], ...]] = {}
    sent: dict[str, tuple[int, int]] = {}
    rows: list[tuple[int, Finished]] = []
    due = [(int(rng.random() * pause_s * 1e9), client) for client in range(clients)]
    while due or sent:
        due.sort()
        at = engine.next_ns()
        if due and (at is None or due[0][0] < at) and len(rows) + len(sent) < calls:
            now, client = due.pop(0)
            done = engine.advance(now)
            before = content.get(client, ())
            if sum(tokens for _, tokens in before) > 60_000:
                before = ()
            content[client] = (*before, (f"{client}.{len(rows)}.{now}", rng.randint(500, 20_000)))
            name = f"{now}.{client}"
            sent[name] = (now, client)
            engine.submit(EngineRequest(name, content[client], rng.randint(50, 600)), now)
        elif at is not None:
            done = engine.advance(at)
        else:
            break
        for event in done:
            if isinstance(event, Finished):
                start, client = sent.pop(event.id)
                rows.append((start, event))
                due.append((event.at_ns + int(rng.expovariate(1 / pause_s) * 1e9), client))
    return Observed(
        sent_ns=np.array([start for start, _ in rows], dtype=np.int64),
        prompt_tokens=np.array([done.prompt_tokens for _, done in rows], dtype=np.int64),
        cached_tokens=np.array([done.cached_tokens for _, done in rows], dtype=np.int64),
        output_tokens=np.array([done.token_counts.sum() for _, done in rows], dtype=np.int64),
        stamps_ns=[done.token_ns for _, done in rows],
    )


@pytest.mark.parametrize(
    ("profile", "name"), [("llama-3.1-8b-h100", "fp8"), ("gpt-oss-20b-h100", "fp8-skip-sw")]
)
def test_a_fit_finds_the_coefficients_that_made_the_run(profile: str, name: str) -> None:
    arm = replace(shipped(profile, name), noise=NOISE)
    assert arm.step
    found = fit(
        measured(arm, clients=12, calls=600, pause_s=10),
        weights_ms=arm.step.weights_ms,
        experts=arm.model.experts,
    )
    true, step = arm.step, found.step
    assert step.decode_ms == pytest.approx(true.decode_ms, rel=0.01)
    assert step.decode_ms_per_token == pytest.approx(true.decode_ms_per_token, rel=0.03)
    assert step.prefill_ms_per_token == pytest.approx(true.prefill_ms_per_token, rel=0.05)
    assert step.prefill_ms_per_pair == pytest.approx(true.prefill_ms_per_pair, rel=0.03)
    assert step.host_ms_per_token == pytest.approx(true.host_ms_per_token, rel=0.05)
    assert step.batch8_ms == pytest.approx(true.batch8_ms, rel=0.05)
    assert step.batch8_attention == pytest.approx(true.batch8_attention, abs=0.03)
    assert found.itl_error.median < 0.01
    assert found.ttft_error.median < 0.015
    assert (found.calls, found.notes) == (600, ())


def test_what_a_lone_client_cannot_show_is_left_unknown() -> None:
    arm = replace(shipped("llama-3.1-8b-h100", "bf16"), noise=NOISE)
    assert arm.step
    found = fit(measured(arm, clients=1, calls=60, pause_s=1), weights_ms=arm.step.weights_ms)
    assert (found.step.batch8_ms, found.step.batch8_attention, found.step.known_to_batch) == (
        None,
        None,
        1,
    )
    assert found.step.decode_ms == pytest.approx(arm.step.decode_ms, rel=0.02)
    assert any("taken as nothing" in note for note in found.notes)


def test_calls_whose_chunks_were_read_at_once_say_nothing_of_steps() -> None:
    arm = shipped("llama-3.1-8b-h100", "bf16")
    assert arm.step
    seen = measured(arm, clients=4, calls=120, pause_s=3)
    at_once = [np.array(stamps) for stamps in seen.stamps_ns]
    for stamps in at_once[::9]:
        stamps[1:] = stamps[-1]
    found = fit(replace(seen, stamps_ns=at_once), weights_ms=None)
    assert found.step.decode_ms == pytest.approx(arm.step.decode_ms, rel=0.03)


def test_too_few_calls_are_refused() -> None:
    arm = shipped("llama-3.1-8b-h100", "bf16")
    with pytest.raises(ProfileError, match="too few to fit"):
        fit(measured(arm, clients=1, calls=10, pause_s=1), weights_ms=5)
