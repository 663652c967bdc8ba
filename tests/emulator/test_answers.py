from __future__ import annotations

from dataclasses import replace

import pytest

from agentload.dispatch.garbage import garbage
from agentload.emulator.answers import Found, answer, other_text, read, success_rate
from agentload.model.profile import Accuracy, ArmProfile
from tests.emulator.arms import shipped, small

HAY = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. " * 3
)


def with_scores(*scores: tuple[int, float], name: str = "test") -> ArmProfile:
    rows = tuple(
        Accuracy(task="niah", percent=percent, context_tokens=tokens, source="us")
        for tokens, percent in scores
    )
    return replace(small(), name=name, accuracy=rows)


@pytest.mark.parametrize(
    ("texts", "right", "wrong"),
    [
        (
            [
                HAY
                + "One of the special magic numbers for odd-lamp is: 7314062. "
                + HAY
                + "One of the special magic numbers for big-cat is: 1111111. ",
                "What is the special magic number for odd-lamp mentioned in the provided text?",
            ],
            "7314062",
            "1111111",
        ),
        (
            [
                HAY + "VAR ABCDE = 12345 ... VAR XYZAB = VAR ABCDE . VAR QQQQQ = 99999",
                "Find all variables that are assigned the value 12345",
            ],
            "ABCDE XYZAB",
            "ABCDE",
        ),
        (
            ["The build token is ZX-4417. And so on.", "What is the build token?"],
            "ZX-4417",
            "ZX-7740",
        ),
        (
            ["old: the owner is Ann.\nlater: the owner is Bob, he said.", "What was the owner?"],
            "Bob",
            "boB",
        ),
        (
            ["port = 8080\nhost = db-1\n", "Answer as JSON with keys port and host."],
            '{"port": "8080", "host": "db-1"}',
            '{"port": "1313", "host": "db-4"}',
        ),
        (['Reply with exactly "ready to go" please.'], "ready to go", "og ot ydaer"),
    ],
)
def test_the_right_answer_is_read_from_the_prompt(texts: list[str], right: str, wrong: str) -> None:
    assert read(texts) == Found(right=right, wrong=wrong)


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["also area arts"],
        ["nothing is said", "What is the magic word?"],
        ["What is"],
        ["VAR A = 1", "variables assigned the value 2"],
    ],
)
def test_what_cannot_be_looked_up_is_not_answered(texts: list[str]) -> None:
    assert read(texts) is None


@pytest.mark.parametrize("text", ["7314062", "ZX-4417", "abc", "aba", "x"])
def test_a_wrong_answer_differs(text: str) -> None:
    assert other_text(text) != text


@pytest.mark.parametrize(
    ("tokens", "rate"),
    [(10, 1.0), (1000, 1.0), (64_500, 0.956), (128_000, 0.912), (200_000, 0.912)],
)
def test_the_rate_follows_the_table_between_its_points_and_stays_beyond_them(
    tokens: int, rate: float
) -> None:
    assert success_rate(shipped("llama-3.1-8b-h100", "bf16"), tokens) == pytest.approx(rate)


def test_an_arm_without_published_accuracy_does_not_fail() -> None:
    assert success_rate(shipped("gpt-oss-20b-h100", "fp8"), 128_000) == 1.0


@pytest.mark.parametrize(
    ("depth", "rate"), [(None, 1.0), (0.2, 1.0), (0.25, 0.0), (0.375, 0.0), (0.6, 1.0)]
)
def test_a_score_of_one_depth_holds_there_and_nowhere_else(
    depth: float | None, rate: float
) -> None:
    anywhere = Accuracy(task="niah", percent=100.0, context_tokens=1000, source="assumed")
    lost = replace(anywhere, percent=0.0, depth=(0.25, 0.5))
    arm = replace(shipped("llama-3.1-8b-h100", "bf16"), accuracy=(anywhere, lost))
    assert success_rate(arm, 64_000, depth=depth) == rate
    assert success_rate(arm, 64_000, depth=depth, task="mrcr-2") == rate


def needle(number: int) -> list[str]:
    return [
        f"item {number}. The code of the safe is {number}7. {HAY}",
        "What is the code of the safe?",
    ]


def test_answers_are_right_as_often_as_the_table_says() -> None:
    arm = with_scores((1000, 80.0))
    right = [
        answer(arm, needle(number), context_tokens=1000, seed=1, limit=20).is_right
        for number in range(2000)
    ]
    # Four standard errors of a share of 0.8 among 2,000.
    assert sum(map(bool, right)) / 2000 == pytest.approx(0.8, abs=0.036)


def test_two_arms_fail_mostly_on_the_same_prompts_but_not_only() -> None:
    one, other = (
        [
            bool(answer(arm, needle(number), context_tokens=1000, seed=1, limit=20).is_right)
            for number in range(2000)
        ]
        for arm in (with_scores((1000, 80.0)), with_scores((1000, 80.0), name="other"))
    )
    better, worse = (
        sum(a and not b for a, b in zip(*pair, strict=True))
        for pair in ((one, other), (other, one))
    )
    assert min(better, worse) > 20
    assert better + worse < 0.32 * 2000 * 0.8


def test_equal_seed_and_prompt_give_the_equal_answer() -> None:
    arm = with_scores((1000, 50.0))
    said = [answer(arm, needle(3), context_tokens=1000, seed=4, limit=20) for _ in range(2)]
    assert said[0] == said[1]
    seeds = {
        answer(arm, needle(3), context_tokens=1000, seed=seed, limit=20).is_right
        for seed in range(20)
    }
    assert seeds == {True, False}


@pytest.mark.parametrize(("limit", "tokens", "finish"), [(50, 1, "stop"), (1, 1, "length")])
def test_an_answer_stops_when_it_has_said_what_was_asked(
    limit: int, tokens: int, finish: str
) -> None:
    said = answer(small(), needle(3), context_tokens=1000, seed=4, limit=limit)
    assert (said.pieces[:1], len(said.pieces), said.finish) == (("37",), tokens, finish)


def test_a_forced_answer_has_exactly_the_tokens_that_were_asked_for() -> None:
    said = answer(small(), needle(3), context_tokens=1000, seed=4, limit=50, is_forced=True)
    assert (len(said.pieces), len(said.text.split()), said.finish, said.pieces[0]) == (
        50,
        50,
        "length",
        "37",
    )


def test_where_nothing_is_asked_words_are_said() -> None:
    said = answer(small(), ["also area arts"], context_tokens=3, seed=4, limit=1000)
    assert (said.is_right, said.finish) == (None, "stop")
    assert 32 <= len(said.pieces) < 128


def test_a_broken_kernel_gives_garbage_that_the_replayer_recognises() -> None:
    arm = shipped("llama-3.1-8b-h100-old-kernel", "fp8")
    texts = [
        answer(arm, needle(number), context_tokens=128_000, seed=1, limit=64)
        for number in range(300)
    ]
    broken = [said for said in texts if garbage(said.text)]
    assert len(broken) / 300 == pytest.approx(0.87, abs=0.08)
    assert {said.pieces for said in broken} == {("!",) * 64}
