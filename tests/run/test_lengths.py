from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentload.run.questions import ScaledTokens, line
from agentload.tasks import catalog


def test_a_line_through_two_prompts_tells_what_the_template_and_a_word_cost() -> None:
    assert line((2000, 6000), (2636, 7836)) == ScaledTokens(around=36, a_word=1.307)


def test_a_server_that_counts_next_to_nothing_costs_a_tenth_of_a_token_a_word_and_no_less() -> None:
    assert line((2000, 6000), (100, 100)) == ScaledTokens(around=100, a_word=0.101)
    assert line((2000, 6000), (1000, 6000)) == ScaledTokens(around=0, a_word=1.257)


@given(st.sampled_from(catalog.names()), st.integers(0, 60), st.floats(0.8, 6.0))
def test_prompts_whose_words_cost_more_hold_fewer_of_them(name: str, around: int, a_word: float) -> None:
    task = catalog.task(name)
    tokens = ScaledTokens(around=around, a_word=a_word)
    item = task.item(seed=1, context=16_384, depth=0.5 if task.has_depth else None, number=0, tokenizer=tokens)
    used = around + sum(tokens.count(str(message["content"])) for message in item.messages) + item.output_tokens
    assert 0.85 * 16_384 <= used <= 16_384
