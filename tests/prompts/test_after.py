"""A prompt that takes over what the one before it in its session has is the one made alone."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.model.trace import Role, Segment, image_tokens
from agentload.model.walk import contexts
from agentload.prompts.renderer import RECORDED_SCHEMAS, Prompt, Renderer
from agentload.prompts.tokenizer import WORD_TOKENS, MeasuredTokens
from agentload.workloads import catalog

ROLES: Final[tuple[Role, ...]] = ("system", "user", "assistant", "tool", "tools")
KEPT_SCHEMAS: Final = RECORDED_SCHEMAS + ',"function":{"name":"read"}}]'
TEMPLATE: Final = MeasuredTokens(
    exact="exact",
    words=WORD_TOKENS.words[:200],
    frames={
        "prompt": 3,
        "systemless": 5,
        "system": 2,
        "user": 4,
        "assistant": 4,
        "tool": 6,
        "next_tool": 1,
        "tools": 9,
        "schema": 7,
        "newline": 1,
    },
    tokens_a_word=1.3,
    count_text=lambda text: len(text.split()),
)

words = st.sampled_from(["read(", "a b c", 'said\nread({"path":"x"})', 'é\n"quoted"'])
keys = st.sampled_from(["a", "b", "c"]) | st.tuples(st.integers(0, 3), st.just(2))
segments = (
    st.builds(
        lambda role, tokens, key: Segment(role=role, tokens=tokens, key=key),
        st.sampled_from(ROLES),
        st.integers(0, 40),
        keys,
    )
    | st.builds(
        lambda size: Segment(role="image", tokens=image_tokens(size), key="i", pixels=size),
        st.tuples(st.integers(1, 60), st.integers(1, 60)),
    )
    | st.builds(
        lambda role, text: Segment(role=role, tokens=9, key=text, text=text),
        st.sampled_from(ROLES[:4]),
        words,
    )
    | st.builds(
        lambda at: Segment(role="user", tokens=30, key="p", plant="a fact", at=at), st.floats(0, 1)
    )
    | st.just(Segment(role="tools", tokens=40, key="kept", text=KEPT_SCHEMAS))
)
turns = st.tuples(
    st.none() | st.integers(0, 20), st.lists(segments, max_size=4), st.sampled_from(["s", "s", "t"])
)


def same(one: Prompt, other: Prompt) -> bool:
    """Tell whether two prompts are equal in all that is sent and stored."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("messages", "tools", "tokens", "hash", "size")
    )


@given(st.lists(turns, max_size=8), st.sampled_from([WORD_TOKENS, TEMPLATE]))
def test_it_is_byte_for_byte_the_same_whatever_turns_keep_add_or_salt(
    session: list[tuple[int | None, list[Segment], str]], tokenizer: MeasuredTokens
) -> None:
    renderer = Renderer(seed=7, tokenizer=tokenizer)
    context: tuple[Segment, ...] = ()
    before = None
    for keep, added, salt in session:
        context = (*context[:keep], *added)
        before = renderer.render(context, salt=salt, after=before)
        assert same(before, Renderer(seed=7, tokenizer=tokenizer).render(context, salt=salt))


@pytest.mark.parametrize("name", ["chat", "code", "mix", "multimodal", "rag"])
def test_it_is_the_same_over_sessions_of_a_workload_that_take_turns(name: str) -> None:
    trace = catalog.trace(name, seed=3)
    renderer = Renderer(seed=trace.header.seed, block=trace.header.block)
    alone = Renderer(seed=trace.header.seed, block=trace.header.block, cache_bytes=0)
    taken = 0
    for _, session in zip(range(6), trace.sessions, strict=False):
        before: dict[str, Prompt] = {}
        for _, context in zip(range(8), contexts(trace.header, session), strict=False):
            for salt in ("s1", "s2"):
                last = before.get(salt)
                prompt = renderer.render(context, salt=salt, after=last)
                taken += last is not None and last.leads(context, salt=salt)
                assert same(prompt, alone.render(context, salt=salt))
                before[salt] = prompt
    assert taken or name in {"multimodal", "rag"}  # whose sessions have few turns
