import pytest

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
    ],
)
def test_arms_in_a_sentence_are_named_as_people_do(told: str, text: str) -> None:
    assert labels.with_names(told, ("bf16", "fp8", "fp8-skip-sw")) == text


def test_a_slug_is_the_name_itself_where_that_is_safe() -> None:
    assert labels.slug("long-chat") == "long-chat"
    assert labels.slug("long_chat") != labels.slug("long chat")
