import pytest

from advisor.steps import Questions
from advisor.verdict import Need
from agentload.report import labels


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ("fp8 beats bf16; fp8-skip-sw does not", "FP8 beats BF16; FP8 skip-SW does not"),
        (
            "fp8_e4m3, --kv-cache-dtype=fp8, profiles/fp8.yaml",
            "fp8_e4m3, --kv-cache-dtype=fp8, profiles/fp8.yaml",
        ),
        ("(fp8)", "(FP8)"),
        ("KV dtype fp8 on fp8", "KV dtype fp8 on FP8"),
    ],
)
def test_arms_in_a_sentence_are_named_as_people_do(told: str, text: str) -> None:
    assert labels.with_names(told, ("bf16", "fp8", "fp8-skip-sw")) == text


def test_a_slug_is_the_name_itself_where_that_is_safe() -> None:
    assert labels.slug("long-chat") == "long-chat"
    assert labels.slug("long_chat") != labels.slug("long chat")


@pytest.mark.parametrize(
    ("in_all", "text"),
    [(567, "407 more paired questions on fp8, 9 min"), (407, "407 paired questions on fp8, 9 min")],
)
def test_missing_questions_are_told_from_all_that_the_command_asks_for(
    in_all: int, text: str
) -> None:
    need = Need(
        what="paired questions on fp8",
        pairs=407,
        minutes=9.0,
        step=Questions(lengths=(8192,), items=in_all),
    )
    assert labels.sentence(need) == text
