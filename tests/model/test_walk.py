"""A walk over sessions, from turn to turn."""

from __future__ import annotations

import pytest
from hypothesis import given

from agentload.model.trace import Trace
from agentload.model.walk import common_start, context_tokens, contexts, last_context
from tests.layout.family_draws import traces


@given(trace=traces())
def test_contexts_and_their_tokens_are_known_without_those_before_them(trace: Trace) -> None:
    for session in trace.sessions:
        sums = [
            sum(segment.tokens for segment in context)
            for context in contexts(trace.header, session)
        ]
        assert list(context_tokens(trace.header, session)) == sums
        for number, context in enumerate(contexts(trace.header, session), 1):
            assert last_context(trace.header, session, number) == context


@pytest.mark.parametrize(
    ("one", "other", "same"), [("abc", "abd", 2), ("abc", "abc", 3), ("", "a", 0), ("ab", "abc", 2)]
)
def test_a_common_start_ends_at_the_first_difference(one: str, other: str, same: int) -> None:
    assert common_start(one, other) == same
