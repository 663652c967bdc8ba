"""Contexts made from local block ids share exactly what
the ids share, and have exactly the lengths of the source.
"""

from hypothesis import given
from hypothesis import strategies as st

from agentload.importers.parts.blocks import BlockPrompt, PromptTree, change
from agentload.importers.parts.reuse import BlockReuse
from agentload.model.trace import Segment, Session, Turn
from tests.importers.importing import ideal_of, lengths

BLOCK = 4


@st.composite
def prompts(draw: st.DrawFn) -> list[tuple[list[int], int]]:
    """Draw prompts each of which goes on from some place of
    an earlier one, with ids that name all up to their block.
    """
    known: dict[tuple[int, ...], int] = {}
    found: list[tuple[tuple[int, ...], int]] = [((), 0)]
    for _ in range(draw(st.integers(1, 7))):
        content, _ = draw(st.sampled_from(found))
        kept = content[: draw(st.integers(0, len(content)))]
        content = kept + tuple(draw(st.lists(st.integers(0, 1), max_size=3)))
        found.append((content, len(content) * BLOCK + draw(st.integers(1, BLOCK - 1))))
    return [
        ([known.setdefault(content[: end + 1], len(known)) for end in range(len(content))], tokens)
        for content, tokens in found[1:]
    ]


def made(found: list[tuple[list[int], int]]) -> Session:
    growth = PromptTree(BLOCK)
    added: list[BlockPrompt] = []
    for number, (ids, tokens) in enumerate(found):
        prompt = growth.add(ids, tokens, after=added[-1] if added else None)
        prompt.key, prompt.roles = (
            f"p{number}",
            (("assistant", min(tokens, prompt.start + 3)), ("tool", tokens)),
        )
        added.append(prompt)
    changes = [change(before, now) for before, now in zip([None, *added], added, strict=False)]
    return Session(
        session="s",
        workload="w",
        turns=tuple(Turn(add=add, output=1, keep=keep) for keep, add in changes),
    )


@given(prompts())
def test_lengths_are_the_sources_to_the_token_and_sharing_to_the_block(
    found: list[tuple[list[int], int]],
) -> None:
    session = made(found)
    source = BlockReuse(BLOCK)
    for ids, tokens in found:
        source.trail().blocks(ids, tokens)
    assert lengths(session) == [tokens for _, tokens in found]
    assert ideal_of([session], BLOCK) == source.ratio


def test_a_prompt_that_goes_on_keeps_all_and_adds_the_answer_and_the_result() -> None:
    session = made([([0, 1], 10), ([0, 1, 2, 3], 18)])
    assert session.turns[1] == Turn(
        add=(
            Segment(role="assistant", tokens=3, key="p1"),
            Segment(role="tool", tokens=5, key="p1+3"),
        ),
        output=1,
    )


def test_a_prompt_that_branches_cuts_the_segment_that_it_leaves() -> None:
    session = made([([0, 1, 2], 14), ([0, 1, 2, 3], 17), ([0, 4], 9)])
    assert [
        (turn.keep, [(segment.key, segment.tokens) for segment in turn.add])
        for turn in session.turns
    ] == [
        (None, [("p0", 3), ("p0+3", 1), ("p0+4", 10)]),
        (None, [("p1", 3)]),
        (2, [("p2", 3), ("p2+3", 2)]),
    ]
