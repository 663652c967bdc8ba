from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.model.trace import image_tokens
from agentload.prompts import count, images
from agentload.serve.content import content, token_id, token_ids
from agentload.serve.wanted import Wanted

BLOCK = 4
WORDS = st.lists(st.sampled_from(["a", "bb", "ccc", "dd"]), max_size=30)


def chat(*contents: Any) -> Wanted:
    return Wanted(face="chat", model=None, messages=tuple({"role": "user", "content": content} for content in contents))


def shared_tokens(one: Wanted, other: Wanted) -> int:
    """Count what a prefix cache would share: the whole blocks of the common run prefix."""
    total = 0
    for mine, theirs in zip(content(one, block=BLOCK).runs, content(other, block=BLOCK).runs, strict=False):
        if mine != theirs:
            break
        total += mine[1]
    return total // BLOCK * BLOCK


@given(st.lists(WORDS, min_size=1, max_size=4))
def test_runs_are_blocks_and_count_what_the_tokenizer_counts(messages: list[list[str]]) -> None:
    asked = chat(*(" ".join(words) for words in messages))
    found = content(asked, block=BLOCK)
    assert found.tokens == sum(tokens for _, tokens in found.runs) == count.count(asked.messages, ()) == len(token_ids(asked))
    assert all(tokens == BLOCK for _, tokens in found.runs[:-1])


@given(WORDS, WORDS, WORDS)
def test_two_prompts_share_the_whole_blocks_of_their_common_words(start: list[str], mine: list[str], theirs: list[str]) -> None:
    one, other = start + mine, start + theirs
    common = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    assert shared_tokens(chat(" ".join(one)), chat(" ".join(other))) == common // BLOCK * BLOCK


def test_where_a_message_ends_does_not_matter_only_the_words_do() -> None:
    assert content(chat("a b", "c d e"), block=BLOCK) == content(chat("a b c d e"), block=BLOCK)


def test_an_image_is_one_run_of_its_own_and_the_text_after_it_meets_the_next_block() -> None:
    url = images.data_url(1, "picture", (64, 32))
    size = image_tokens((64, 32))
    found = content(
        chat([{"type": "text", "text": "a b c"}, {"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "d " * 9}]),
        block=8,
    )
    assert size == 6
    assert [tokens for _, tokens in found.runs] == [3, 6, 7, 2]
    assert found.tokens == 18


def test_equal_images_have_equal_identities_and_others_do_not() -> None:
    def run(seed: int) -> tuple[str, int]:
        return content(chat([{"type": "image_url", "image_url": {"url": images.data_url(seed, "p", (28, 28))}}]), block=BLOCK).runs[0]

    assert run(1) == run(1) != run(2)


@pytest.mark.parametrize(("prompt", "tokens"), [("a b c", 3), ((5, 6, 7, 8, 9), 5)])
def test_completions_take_text_and_ids(prompt: str | tuple[int, ...], tokens: int) -> None:
    asked = Wanted(face="completions", model=None, prompt=prompt)
    assert content(asked, block=BLOCK).tokens == tokens == len(token_ids(asked))


def test_token_ids_are_the_same_in_prompts_and_answers() -> None:
    assert token_ids(chat("alpha beta")) == [token_id("alpha"), token_id("beta")]
