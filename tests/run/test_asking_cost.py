from __future__ import annotations

import pytest

from agentload.run.questions import Generated, asking, questions_cost


@pytest.mark.parametrize(
    ("arms", "concurrency", "thinking", "seconds"),
    [
        # 24 questions of 4,096 or 8,192 tokens: 147,456 tokens a GPU take 14.7456 s; 64 tokens of an answer take 1.28 s.
        (1, 1, 0, 14.7456 + 24 * 1.28),
        (1, 8, 0, 14.7456 + 24 * 1.28 / 8),
        (2, 8, 0, 14.7456 + 24 * 1.28 / 4),
        (2, 1, 0, 2 * (14.7456 + 24 * 1.28)),  # one arm waits for the other
        (1, 8, 936, 14.7456 + 24 * 20.0 / 8),
    ],
)
def test_prompts_queue_for_a_gpu_and_answers_share_it(arms: int, concurrency: int, thinking: int, seconds: float) -> None:
    asked = Generated(asking=asking(tasks=["needle"], contexts=[4096, 8192], depths=3, items=12, repetitions=2, seed=0))
    found = questions_cost(asked, arms=arms, concurrency=concurrency, thinking_tokens=thinking)
    assert (found.items, found.questions, found.prompt_tokens) == (12, 24 * arms, 147_456 * arms)
    assert found.minutes * 60 == pytest.approx(seconds)
    assert found.assumed == "10,000 prompt tokens a second, 20 ms a token, answers of 64"
