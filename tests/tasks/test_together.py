"""Questions that share a context: each is about a
part of its own, and none is longer than it may be.
"""

import pytest

from agentload.emulator.answers import read
from agentload.errors import UsageError
from agentload.prompts.tokenizer import WORD_TOKENS
from agentload.run.questions import asking, catalog_questions
from agentload.tasks import Item, texts
from agentload.tasks.catalog import request_tokens
from agentload.tasks.parts.draw import together

SINGLE = (
    "needle",
    "needle-multikey-2",
    "tool_log",
    "json_recall",
    "exact_copy",
    "variable_tracking",
    "patch_recall",
    "arithmetic",
)


@pytest.mark.parametrize("task", SINGLE)
def test_questions_behind_one_context_share_all_but_their_last_line(task: str) -> None:
    asked = catalog_questions(
        asking(tasks=[task], contexts=[8192], depths=1, items=8, repetitions=1, seed=3, together=4)
    )
    questions = asked.order
    assert [each.part for each in questions] == [0, 1, 2, 3] * 2
    assert len({each.behind for each in questions}) == 2
    items = [asked.item(each) for each in questions[:4]]
    assert len({texts(item)[0].rpartition("\n")[0] for item in items}) == 1
    assert len({texts(item)[0].rpartition("\n")[2] for item in items}) == 4
    for question, item in zip(questions, items, strict=False):
        assert 0.75 * 8192 < request_tokens(item, WORD_TOKENS) <= 8192
        found = read(texts(item))
        assert found is not None
        assert asked.grade(found.right, question, item).right
        others = [each for each in items if each is not item]
        assert not any(asked.grade(found.right, question, each).right for each in others)


def test_a_conversation_shares_no_context() -> None:
    asked = catalog_questions(
        asking(
            tasks=["pointer_chase"],
            contexts=[8192],
            depths=1,
            items=4,
            repetitions=1,
            seed=3,
            together=4,
        )
    )
    with pytest.raises(UsageError, match="conversation"):
        asked.item(asked.order[0])


def test_messages_in_parts_share_no_context() -> None:
    part = {"role": "user", "content": [{"type": "image_url"}]}
    item = Item(messages=(part, part), wanted=("x",), output_tokens=1)
    with pytest.raises(UsageError, match="conversation"):
        together([item], task="mine")
