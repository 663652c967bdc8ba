"""Which questions are asked, how long they are in a server's own tokens, and what they cost."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError, UsageError
from agentload.layout.cost import asking_s
from agentload.run.questions import (
    Asking,
    Question,
    ScaledTokens,
    asking,
    catalog_questions,
    line,
    measure_lengths,
    questions_cost,
)
from agentload.tasks import catalog
from tests.live.scripted import Answer, Peer, serving


def test_every_cell_gets_one_item_where_no_number_is_given() -> None:
    made = asking(
        tasks=["needle"], contexts=[4096, 8192], depths=3, items=None, repetitions=1, seed=7
    )
    assert made.questions() == tuple(
        Question(
            task="needle",
            context=context,
            depth=depth,
            number=0,
            repetition=0,
            item=f"s7-d{place:02}-0000",
        )
        for place, depth in enumerate((0.0, 0.5, 1.0))
        for context in (4096, 8192)
    )


COUNTS = st.integers(1, 5)


@given(
    st.sets(
        st.sampled_from(("needle", "tool_log", "variable_tracking", "mrcr_like-2")), min_size=1
    ),
    COUNTS,
    COUNTS,
    st.integers(1, 200),
    st.integers(1, 3),
)
def test_items_are_spread_evenly_and_each_is_asked_as_often_as_said(
    tasks: set[str], lengths: int, depths: int, items: int, repetitions: int
) -> None:
    made = asking(
        tasks=sorted(tasks),
        contexts=range(1000, 1000 + lengths),
        depths=depths,
        items=items,
        repetitions=repetitions,
        seed=0,
    )
    asked = made.questions()
    assert len(set(asked)) == len(asked) == items * repetitions
    named = Counter((each.task, each.context, each.item) for each in asked)
    assert (len(named), set(named.values())) == (items, {repetitions})
    cells = Counter((task, context) for task, context, _ in named)
    assert max(cells.values()) - min(cells.values()) <= depths or len(cells) < len(tasks) * lengths


def test_a_task_without_a_place_gets_as_many_items_as_the_others() -> None:
    made = asking(
        tasks=["needle", "variable_tracking"],
        contexts=[4096],
        depths=4,
        items=16,
        repetitions=1,
        seed=0,
    )
    assert Counter((each.task, each.depth is None) for each in made.questions()) == {
        ("needle", False): 8,
        ("variable_tracking", True): 8,
    }


@pytest.mark.parametrize(
    "wrong", [{"depths": 0}, {"items": 0}, {"repetitions": 0}, {"tasks": ["neddle"]}]
)
def test_what_cannot_be_asked_is_refused(wrong: dict[str, object]) -> None:
    given: dict[str, object] = {
        "tasks": ["needle"],
        "contexts": [4096],
        "depths": 1,
        "items": None,
        "repetitions": 1,
        "seed": 0,
    }
    with pytest.raises(UsageError):
        asking(**given | wrong)  # type: ignore[arg-type]  # a table of cases


def test_depths_are_spread_from_end_to_end_and_told_in_four_decimals() -> None:
    made = asking(tasks=["needle"], contexts=[4096], depths=4, items=None, repetitions=1, seed=0)
    assert made.depths == (0.0, 0.3333, 0.6667, 1.0)


def test_one_depth_is_the_middle() -> None:
    assert asking(
        tasks=["needle"], contexts=[4096], depths=1, items=2, repetitions=1, seed=0
    ) == Asking(tasks=("needle",), contexts=(4096,), depths=(0.5,), items=2)


@pytest.mark.parametrize(
    ("arms", "concurrency", "thinking", "seconds"),
    [
        # 24 questions of 4,096 or 8,192 tokens: 147,456 tokens a
        # GPU take 14.7456 s; 64 tokens of an answer take 1.28 s.
        (1, 1, 0, 14.7456 + 24 * 1.28),
        (1, 8, 0, 14.7456 + 24 * 1.28 / 8),
        (2, 8, 0, 14.7456 + 24 * 1.28 / 4),
        (2, 1, 0, 2 * (14.7456 + 24 * 1.28)),  # one arm waits for the other
        (1, 8, 936, 14.7456 + 24 * 20.0 / 8),
    ],
)
def test_prompts_queue_for_a_gpu_and_answers_share_it(
    arms: int, concurrency: int, thinking: int, seconds: float
) -> None:
    asked = catalog_questions(
        asking(tasks=["needle"], contexts=[4096, 8192], depths=3, items=12, repetitions=2, seed=0)
    )
    found = questions_cost(asked, arms=arms, concurrency=concurrency, thinking_tokens=thinking)
    assert (found.items, found.questions, found.prompt_tokens) == (12, 24 * arms, 147_456 * arms)
    assert found.minutes * 60 == pytest.approx(seconds)
    assert found.assumed == "10,000 prompt tokens a second, 20 ms a token, answers of 64"


def test_what_contexts_take_is_added_up_in_the_order_of_the_questions() -> None:
    # a sum of floats depends on its order, and that of a set on the process
    contexts = [4096, 8192, 12288, 16384, 20480, 24576, 28672]
    taken_s = dict(zip(contexts, (1e16, 1.0, -1e16, 3.0, 1e16, 5.0, -1e16), strict=True))
    asked = catalog_questions(
        asking(tasks=["needle"], contexts=contexts, depths=1, items=7, repetitions=1, seed=0)
    )
    found = questions_cost(
        asked, arms=1, concurrency=1, thinking_tokens=0, prefill_s=taken_s.__getitem__
    )
    in_order_s = sum(taken_s[each.context] for each in asked.order)
    assert found.minutes == asking_s(in_order_s, 7, arms=1, concurrency=1) / 60


def test_a_line_through_two_prompts_tells_what_the_template_and_a_word_cost() -> None:
    assert line((2000, 6000), (2636, 7836)) == ScaledTokens(around=36, a_word=1.307)


def counter(window: int) -> Answer:
    """Return a server whose words are four tokens
    each, and which refuses prompts beyond its window.
    """

    async def answer(peer: Peer) -> None:
        status = b"200 OK"
        said: dict[str, object] = {"data": [{"id": "m"}]}
        if peer.request.line.split()[1].endswith("/chat/completions"):
            messages = json.loads(peer.request.body)["messages"]
            tokens = 4 * sum(len(each["content"].split()) for each in messages)
            said = {
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "a"},
                        "finish_reason": "length",
                    }
                ],
                "usage": {"prompt_tokens": tokens, "completion_tokens": 1},
            }
            if tokens > window:
                status, said = (
                    b"400 Bad Request",
                    {"error": {"message": f"maximum context length is {window} tokens"}},
                )
        body = json.dumps(said).encode()
        await peer.send(
            b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (status, len(body), body)
        )

    return answer


@pytest.mark.loopback
async def test_lengths_are_measured_on_a_server_whose_window_holds_few_words() -> None:
    async with serving(counter(8192)) as server:
        found = await measure_lengths(
            Endpoint(name="a", url=server.url, model="m"), ["json_recall"], seed=0
        )
    assert found == {"json_recall": ScaledTokens(around=0, a_word=4.02)}


@pytest.mark.loopback
async def test_a_window_that_holds_no_question_is_told_with_what_the_server_said() -> None:
    async with serving(counter(1024)) as server:
        with pytest.raises(
            EndpointError,
            match=r"cannot measure how long 'json_recall' is: 400: .*maximum context length is "
            r"1024",
        ):
            await measure_lengths(
                Endpoint(name="a", url=server.url, model="m"), ["json_recall"], seed=0
            )


def test_a_server_that_counts_next_to_nothing_costs_a_tenth_of_a_token_a_word_and_no_less() -> None:
    assert line((2000, 6000), (100, 100)) == ScaledTokens(around=100, a_word=0.101)
    assert line((2000, 6000), (1000, 6000)) == ScaledTokens(around=0, a_word=1.257)


@given(st.sampled_from(catalog.names()), st.integers(0, 60), st.floats(0.8, 6.0))
def test_prompts_whose_words_cost_more_hold_fewer_of_them(
    name: str, around: int, a_word: float
) -> None:
    task = catalog.task(name)
    tokens = ScaledTokens(around=around, a_word=a_word)
    item = task.item(
        seed=1, context=16_384, depth=0.5 if task.has_depth else None, number=0, tokenizer=tokens
    )
    used = (
        around
        + sum(tokens.count(str(message["content"])) for message in item.messages)
        + item.output_tokens
    )
    assert 0.85 * 16_384 <= used <= 16_384


@pytest.mark.parametrize("each", [1, 2, 3, 4])
def test_fewer_questions_behind_a_context_still_come_to_all_of_its_parts(each: int) -> None:
    made = replace(
        asking(
            tasks=["needle"],
            contexts=[8192, 16384],
            depths=1,
            items=64,
            repetitions=1,
            seed=0,
            together=4,
        ),
        each=each,
    )
    for length in (8192, 16384):
        depths = Counter(
            question.depth for question in made.questions() if question.context == length
        )
        assert set(depths) == {0.125, 0.375, 0.625, 0.875}
        assert max(depths.values()) - min(depths.values()) <= each
