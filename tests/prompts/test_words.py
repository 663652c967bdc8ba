import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.prompts.words import WIDTH, WORDS, draw, text


def test_the_table_holds_as_many_words_as_a_byte_has_values_all_of_one_width() -> None:
    assert len(set(WORDS)) == 256
    assert {len(word) for word in WORDS} == {WIDTH - 1}
    assert list(WORDS) == sorted(WORDS)


@given(st.integers(0, 2**40), st.text(max_size=8), st.integers(1, 400))
def test_a_text_has_exactly_the_words_asked_for_and_ends_in_a_newline(
    seed: int, key: str, tokens: int
) -> None:
    written = text(seed, key, tokens)
    assert len(written.split()) == tokens
    assert written.endswith("\n")
    assert set(written.split()) <= set(WORDS)


@given(
    st.one_of(st.text(max_size=4), st.tuples(st.integers(0, 99), st.just(9))),
    st.integers(0, 300),
    st.integers(0, 300),
)
def test_a_shorter_text_is_a_prefix_of_a_longer_one(
    key: str | tuple[int, int], one: int, other: int
) -> None:
    short, long = sorted((one, other))
    assert draw(7, key, long).startswith(draw(7, key, short))


def test_a_run_of_blocks_is_the_texts_of_its_blocks_so_overlapping_runs_share_what_they_share() -> (
    None
):
    assert draw(7, (3, 2), 128) == draw(7, (3, 1), 64) + draw(7, (4, 1), 64)
    assert draw(7, (3, 2), 70) == draw(7, (3, 1), 64) + draw(7, (4, 1), 6)
    assert draw(7, (3, 2), 32, block=16) == draw(7, (3, 1), 16, block=16) + draw(
        7, (4, 1), 16, block=16
    )


def test_seed_and_key_change_the_text() -> None:
    assert len({text(seed, key, 20) for seed in (1, 2) for key in ("a", "b", (1, 1), "1")}) == 8


def test_nothing_asked_is_nothing_written() -> None:
    assert text(7, "a", 0) == ""


@pytest.mark.parametrize(("key", "digest"), [("sys", "906a2a4c"), ((12, 40), "0cd78e92")])
def test_the_bytes_are_the_same_on_every_machine(key: str | tuple[int, int], digest: str) -> None:
    assert hashlib.sha256(text(7, key, 1000).encode()).hexdigest()[:8] == digest
