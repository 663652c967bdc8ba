import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.dispatch.garbage import garbage


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("!" * 15, None),
        ("!" * 16, "repetition: nothing but '!'"),
        ("ha, " * 40 + "ha", "repetition: nothing but 'ha, '"),
        ("\n" * 400, None),
        ("The answer is" + "!" * 127, None),
        ("The answer is" + "!" * 128, "repetition: ends with 128 and more of '!'"),
        ("The answer is 4.\n" + "\n" * 300, None),
        ("def f():\n\treturn 1\r\n" * 4, None),
        ("\ufffd\x00a" * 30, "repetition: nothing but '\ufffd\\x00a'"),
        ("ab\ufffdcd" * 20 + "end", None),
        ("a\x01b\ufffdc" * 20 + "end", "unprintable: 40 of 103 characters"),
        ("I will read the file again. " * 50, None),
    ],
)
def test_only_what_no_healthy_model_writes_is_garbage(text: str, expected: str | None) -> None:
    assert garbage(text) == expected


@given(words=st.lists(st.sampled_from(["one", "two", "three", "four"]), min_size=1, max_size=60))
def test_words_in_any_order_are_not_garbage_unless_they_repeat_one_unit(words: list[str]) -> None:
    if len(set(words)) > 2:
        assert garbage(" ".join(words)) is None
