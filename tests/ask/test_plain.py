"""How an arm's answers compare with the reference's: a cache
may shift some, a broken one shifts all or writes garbage.
"""

from __future__ import annotations

import pytest

from agentload.ask.plain import AnswerAgreement, StreamAnswer, answer_agreement


def said(text: str, *ids: int) -> StreamAnswer:
    return StreamAnswer(
        text=text, ttft_ms=None, prompt_tokens=None, cached_tokens=None, token_ids=ids
    )


SOUND = [said(f"word{number} and more", number, 1, 2) for number in range(4)]
SHIFTED = [said("word0 and other", 0, 1, 3), *(said("other", 9, 9) for _ in range(3))]
STRANGE = [said("other", 9, 9)] * 4
LOOP = said("!" * 24, *[5] * 24)


@pytest.mark.parametrize(
    ("base", "own", "found"),
    [
        (SOUND, SOUND, AnswerAgreement(arm="a", prompts=4, first_token=4, whole=4, failed=0)),
        (SOUND, SHIFTED, AnswerAgreement(arm="a", prompts=4, first_token=1, whole=0, failed=0)),
        (
            SOUND,
            STRANGE,
            AnswerAgreement(
                arm="a",
                prompts=4,
                first_token=0,
                whole=0,
                failed=0,
                wrong="no first token is that of the reference",
            ),
        ),
        (
            SOUND[:3],
            STRANGE[:3],
            AnswerAgreement(arm="a", prompts=3, first_token=0, whole=0, failed=0),
        ),  # too few to tell
        (
            SOUND,
            [None, *SOUND[1:]],
            AnswerAgreement(arm="a", prompts=3, first_token=3, whole=3, failed=1),
        ),
        (
            SOUND,
            [*SOUND[:3], LOOP],
            AnswerAgreement(
                arm="a",
                prompts=4,
                first_token=3,
                whole=3,
                failed=0,
                wrong="repetition: nothing but '!'",
            ),
        ),
        (
            [*SOUND[:3], LOOP],
            [*SOUND[:3], LOOP],
            AnswerAgreement(arm="a", prompts=4, first_token=4, whole=4, failed=0),
        ),  # the model is so
    ],
)
def test_a_cache_that_shifts_answers_is_told_from_one_that_is_broken(
    base: list[StreamAnswer | None], own: list[StreamAnswer | None], found: AnswerAgreement
) -> None:
    assert answer_agreement("a", base, own) == found
