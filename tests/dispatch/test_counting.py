import pytest

from agentload.dispatch.counting import Chunk, Shows, token_counts
from agentload.model.commands import TokenRule


def chunk(
    shows: Shows = "text", *, ids: int | None = None, total: int | None = None, length: int = 0
) -> Chunk:
    return Chunk(0, "answer", shows, ids, total, length)


ROLE = chunk("nothing")


@pytest.mark.parametrize(
    ("chunks", "total", "tokens", "rule"),
    [
        ([], None, (), None),
        ([ROLE], 0, (), None),
        ([ROLE, chunk(), chunk("empty"), chunk()], None, (1, 1, 1), "one_a_chunk"),
        # An empty text beside the finish reason may be
        # the end token: nobody knows without the usage.
        ([ROLE, chunk(), chunk("finish")], None, (1,), "one_a_chunk"),
        ([ROLE, chunk(), chunk("finish")], 2, (1, 1), "usage"),
        ([ROLE, chunk(), chunk("finish")], 1, (1,), "usage"),
        ([chunk(), chunk("empty"), chunk("finish")], 1, (1,), "usage"),
        ([chunk(), chunk(), chunk()], 12, (4, 4, 4), "spread"),
        ([chunk(), chunk(), chunk()], 7, (2, 2, 3), "spread"),
        ([chunk(), chunk(), chunk()], 2, (0, 1, 1), "spread"),
        # Chunks of much text carried more tokens than those
        # of little; each with text carried one at least.
        ([chunk(length=30), chunk(length=28), chunk(length=8)], 16, (7, 7, 2), "spread"),
        ([ROLE, chunk(length=99), chunk(length=1), chunk("finish")], 10, (8, 1, 1), "spread"),
        ([chunk(length=1), chunk(length=1), chunk(length=98)], 100, (1, 1, 98), "spread"),
        ([chunk(length=1), chunk(length=1), chunk(length=98)], 4, (1, 1, 2), "spread"),
        ([chunk(length=98), chunk(length=1), chunk(length=1)], 4, (2, 1, 1), "spread"),
        ([chunk(length=9), chunk(length=1), chunk(length=1)], 2, (0, 1, 1), "spread"),
        (
            [ROLE, chunk(ids=3), chunk("nothing", ids=2), chunk(ids=0), chunk("finish", ids=1)],
            6,
            (3, 2, 1),
            "token_ids",
        ),
        # A parser held text back until the end: all tokens
        # are listed elsewhere, or none was shown without.
        ([chunk(ids=3), chunk("nothing", ids=0), chunk("finish", ids=0)], 5, (3,), "token_ids"),
        # A server that stops to list ids: texts say more than they do.
        (
            [chunk(ids=3), chunk(ids=0), chunk(ids=0), chunk("finish", ids=0)],
            5,
            (1, 1, 1, 2),
            "spread",
        ),
        ([chunk(ids=3), chunk(), chunk()], None, (1, 1, 1), "one_a_chunk"),
        ([chunk(ids=1, total=1), chunk(total=2), chunk(total=5)], 5, (1, 1, 3), "running_usage"),
        (
            [chunk("nothing", total=0), chunk(total=1), chunk(total=5), chunk("finish", total=6)],
            6,
            (1, 4, 1),
            "running_usage",
        ),
        # A parser held tokens back: they come with the next chunk.
        ([chunk(total=1), chunk("nothing", total=1), chunk(total=4)], 4, (1, 3), "running_usage"),
        # All tokens are said to be in the first chunk, and texts go on: one more may, for an end
        # that a parser held back.
        ([chunk(total=3), chunk(total=3), chunk(total=3)], 3, (1, 1, 1), "usage"),
        ([chunk(total=3), chunk(total=3), chunk("finish", total=3)], 3, (3,), "running_usage"),
        ([chunk(ids=6), chunk(ids=0), chunk(ids=0)], 6, (2, 2, 2), "spread"),
        ([chunk(ids=6), chunk(ids=0), chunk("finish", ids=0)], 6, (6,), "token_ids"),
        # Usage on the finish chunk alone is a final usage.
        ([ROLE, chunk(), chunk(), chunk("finish", total=2)], 2, (1, 1), "usage"),
    ],
)
def test_tokens_are_counted_by_the_best_evidence_there_is(
    chunks: list[Chunk], total: int | None, tokens: tuple[int, ...], rule: TokenRule | None
) -> None:
    found = token_counts(chunks, total=total)
    assert (tuple(found.tokens), found.rule) == (tokens, rule)
    assert len(found.chunks) == len(tokens)
