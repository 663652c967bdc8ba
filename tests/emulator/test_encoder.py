"""An image is encoded before the language model reads it, once for all who show the same one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentload.emulator.calls import EngineRequest, Finished, FirstToken
from agentload.emulator.encoder import IMAGE
from agentload.emulator.engine import Engine
from agentload.emulator.steptime import slower_arm
from agentload.model.profile import ArmProfile, EncoderTime
from tests.emulator.arms import shipped, small

BLIND = small(budget=1000)
SEEING = replace(BLIND, encoder=EncoderTime(ms_per_token=0.5, ms_per_pair=0.01))
"""An image of 100 tokens takes 150 ms."""
PICTURE = (f"{IMAGE}picture", 100)


class Camera:
    """Ask one engine about images, each call on an idle machine."""

    def __init__(self, arm: ArmProfile) -> None:
        self.engine = Engine(arm)
        self.now = 0
        self.calls = 0

    def ttft_ms(self, *content: tuple[str, int]) -> float:
        self.calls += 1
        sent = self.now
        self.engine.submit(EngineRequest(f"c{self.calls}", content, 1), sent)
        first = 0
        while (at := self.engine.next_ns()) is not None:
            for event in self.engine.advance(at):
                if isinstance(event, FirstToken):
                    first = event.at_ns
                if isinstance(event, Finished):
                    self.now = event.at_ns + 1_000_000
        return (first - sent) / 1e6


def extra_ms(*prompts: tuple[tuple[str, int], ...]) -> list[float]:
    """How much longer each prompt takes than on a machine where images cost their tokens alone."""
    seeing, blind = Camera(SEEING), Camera(BLIND)
    return [round(seeing.ttft_ms(*each) - blind.ttft_ms(*each), 6) for each in prompts]


def test_an_image_takes_its_encoders_time_on_top_of_its_tokens() -> None:
    assert extra_ms((("a", 50), PICTURE)) == [150.0]
    assert extra_ms((("a", 50), ("b", 100))) == [0.0]


def test_an_image_that_was_seen_in_another_prompt_is_not_encoded_again() -> None:
    other = (f"{IMAGE}other", 100)
    assert extra_ms((("a", 50), PICTURE), (("b", 50), PICTURE), (("c", 50), other)) == [
        150.0,
        0.0,
        150.0,
    ]


def test_an_image_in_a_cached_prefix_is_not_encoded_though_its_encoding_is_gone() -> None:
    many = [((f"t{number}", 50), (f"{IMAGE}{number}", 500)) for number in range(3)]
    first = (("a", 60), PICTURE)
    gone = (("b", 60), PICTURE)
    costs = extra_ms(first, *many, (*first, ("more", 50)), gone)
    assert costs[0] == 150.0
    assert costs[4] == 0.0
    assert costs[5] == 150.0


def test_an_image_in_several_chunks_is_encoded_with_the_first() -> None:
    small_steps = replace(SEEING, server=replace(SEEING.server, max_num_batched_tokens=64))
    blind = replace(small_steps, encoder=None)
    prompt = (("a", 50), PICTURE)
    costs = Camera(small_steps).ttft_ms(*prompt) - Camera(blind).ttft_ms(*prompt)
    assert costs == pytest.approx(150)


def test_a_restart_forgets_encodings() -> None:
    seeing, blind = Camera(SEEING), Camera(BLIND)
    before = seeing.ttft_ms(PICTURE) - blind.ttft_ms(PICTURE)
    seeing.engine.restart()
    blind.engine.restart()
    assert seeing.ttft_ms(PICTURE) - blind.ttft_ms(PICTURE) == pytest.approx(before)


def test_a_slower_machine_encodes_slower() -> None:
    slow = slower_arm(SEEING, 2.0)
    assert slow.encoder == EncoderTime(ms_per_token=1.0, ms_per_pair=0.02)


def test_the_shipped_encoder_follows_from_its_geometry() -> None:
    """32 layers of 1280, 28 of them in windows of 64 patches; four patches make a token."""
    shown = shipped("qwen2.5-vl-7b-h100-prior", "bf16").encoder
    assert shown is not None
    patch = 2 * (32 * (4 * 1280**2 + 3 * 1280 * 3420) + 3 * 2 * 14 * 14 * 1280)
    windows = 28 * 4 * 1280 * 64
    merger = 2 * (5120 * 5120 + 5120 * 3584)
    token = 4 * (patch + windows) + merger
    assert shown.ms_per_token == pytest.approx(token / 611e12 * 1e3, rel=0.002)
    assert shown.ms_per_pair == pytest.approx(4 * 4 * 1280 * 16 / 608e12 * 1e3, rel=0.002)
    assert shown.image_ms(37 * 37) == pytest.approx(12.6, abs=0.05)
