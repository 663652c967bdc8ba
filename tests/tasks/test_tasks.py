from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.emulator.answers import read
from agentload.errors import UsageError
from agentload.prompts.count import count
from agentload.prompts.tokenizer import MeasuredTokens
from agentload.prompts.words import WORDS
from agentload.tasks import NOTHING, Grade, Item, catalog, texts

RIGHT = Grade(score=1.0, right=True)
NAMES = st.sampled_from(catalog.names())
SEEDS = st.integers(0, 10_000)
CONTEXTS = st.sampled_from((2048, 4096, 8192))
DEPTHS = st.sampled_from((0.0, 0.2, 0.5, 0.9, 1.0))


def made(name: str, *, seed: int = 1, context: int = 4096, depth: float = 0.5) -> Item:
    task = catalog.task(name)
    return task.item(
        seed=seed, context=context, depth=depth if task.has_depth else None, number=seed
    )


def spelled(name: str, item: Item) -> str:
    """A right answer as a person would write it."""
    if name.startswith("mrcr"):
        return "".join(item.wanted)
    return " ".join(item.wanted)


def test_tasks_are_found_by_file_name_with_their_variants() -> None:
    assert catalog.names() == (
        "arithmetic",
        "arithmetic-40",
        "exact_copy",
        "json_recall",
        "mrcr_like-2",
        "mrcr_like-4",
        "mrcr_like-8",
        "needle",
        "needle-multikey-2",
        "needle-multikey-3",
        "needle-multivalue-4",
        "patch_recall",
        "pointer_chase",
        "tool_choice",
        "tool_log",
        "variable_tracking",
    )


def test_an_unknown_task_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError) as raised:
        catalog.task("needel")
    assert (raised.value.message, raised.value.hint) == ("no task 'needel'", "did you mean needle?")


@given(NAMES, SEEDS, CONTEXTS, DEPTHS)
def test_a_right_answer_scores_one_and_silence_nothing(
    name: str, seed: int, context: int, depth: float
) -> None:
    item, grade = made(name, seed=seed, context=context, depth=depth), catalog.task(name).grade
    assert grade(spelled(name, item), item) == RIGHT
    assert [grade(silence, item) for silence in ("", " \n", "I do not know.")] == [NOTHING] * 3


@given(NAMES, SEEDS, DEPTHS, st.floats(0, 1, exclude_max=True))
def test_an_echo_of_the_context_scores_nothing(
    name: str, seed: int, depth: float, start: float
) -> None:
    item, grade = made(name, seed=seed, context=2048, depth=depth), catalog.task(name).grade
    said = " ".join(texts(item)).split(" ")
    first = round(start * (len(said) - item.output_tokens))
    assert grade(" ".join(said[first : first + item.output_tokens]), item) == NOTHING
    assert grade("\n".join(texts(item)), item) == NOTHING


@given(NAMES, SEEDS, CONTEXTS, DEPTHS)
def test_prompt_and_answer_fill_the_context_and_never_more(
    name: str, seed: int, context: int, depth: float
) -> None:
    item = made(name, seed=seed, context=context, depth=depth)
    used = count(item.messages, item.tools) + item.output_tokens
    # A passage to be copied is the largest piece that may be left out at
    # the end; of schemas the emulated model reads descriptions alone.
    assert context - (320 if item.tools else 260) <= used <= context


@pytest.mark.slow
@given(NAMES, SEEDS, st.sampled_from((16_384, 131_072)))
@settings(max_examples=20)
def test_long_contexts_are_filled_to_a_hundredth(name: str, seed: int, context: int) -> None:
    item = made(name, seed=seed, context=context)
    assert 0.98 * context <= count(item.messages, item.tools) + item.output_tokens <= context


@given(NAMES, SEEDS)
def test_equal_arguments_make_equal_bytes_and_other_seeds_others(name: str, seed: int) -> None:
    assert made(name, seed=seed) == made(name, seed=seed)
    assert made(name, seed=seed).messages != made(name, seed=seed + 1).messages


@given(NAMES, SEEDS)
def test_the_emulated_model_can_answer_every_task(name: str, seed: int) -> None:
    item = made(name, seed=seed)
    if item.tools:  # its call is made of what it reads of the arguments
        wanted = json.loads(item.wanted[0])
        asked = read(
            (*texts(item), f"Answer as JSON with keys {' and '.join(wanted['arguments'])}.")
        )
        assert asked is not None
        assert (json.loads(asked.right), json.loads(asked.wrong) == wanted["arguments"]) == (
            wanted["arguments"],
            False,
        )
        return
    found, grade = read(texts(item)), catalog.task(name).grade
    assert found is not None
    assert (grade(found.right, item).right, grade(found.wrong, item).right) == (True, False)


@pytest.mark.parametrize("name", [name for name in catalog.names() if catalog.task(name).has_depth])
def test_what_is_asked_for_stands_at_its_depth(name: str) -> None:
    def at(depth: float) -> float:
        item = made(name, context=16_384, depth=depth)
        text = str(item.messages[0]["content"])
        sought = (
            next(iter(json.loads(item.wanted[0]).get("arguments", json.loads(item.wanted[0]))))
            if item.wanted[0][0] == "{"
            else item.wanted[0]
        )
        # Of a story only the name is known: it is asked for at the end.
        sought = (
            text.rpartition(" does ")[2].split()[0] + " has"
            if name.startswith("arithmetic")
            else sought
        )
        return text.index(sought) / len(text)

    assert [at(depth) for depth in (0.0, 0.25, 0.5, 0.75, 1.0)] == pytest.approx(
        [0.02, 0.25, 0.5, 0.75, 0.98], abs=0.035
    )


def test_a_context_that_is_too_short_is_refused() -> None:
    with pytest.raises(UsageError, match="too few"):
        made("exact_copy", context=400)


@given(NAMES, SEEDS)
@settings(max_examples=20)
def test_lengths_hold_in_tokens_of_other_sizes_too(name: str, seed: int) -> None:
    # A tokenizer that cuts into pieces of three signs, and a template of 40 tokens.
    tokenizer = MeasuredTokens(
        exact="exact",
        words=WORDS,
        frames={"prompt": 30, "user": 5, "assistant": 5},
        count_text=lambda text: -(-len(text) // 3),
    )
    task = catalog.task(name)
    item = task.item(
        seed=seed,
        context=8192,
        depth=0.5 if task.has_depth else None,
        number=0,
        tokenizer=tokenizer,
    )
    used = sum(tokenizer.count(text) for text in texts(item)) + 30 + 5 * len(item.messages)
    assert 0.8 * 8192 <= used + item.output_tokens <= 8192


@pytest.mark.parametrize(
    ("name", "answer", "grade"),
    [
        ("needle", "The special magic number is {0}.", RIGHT),
        ("needle", "{0} or 1234567", Grade(score=1.0, right=False)),
        (
            "needle",
            "1{0}",
            Grade(score=1.0, right=False),
        ),  # RULER's substring rule alone would take it
        ("variable_tracking", "{4} {3} {2} {1} {0}", RIGHT),
        ("variable_tracking", "{0}, {1}, {2}, {3}", Grade(score=0.8, right=False)),
        ("tool_log", "`{0}`", RIGHT),
        ("patch_recall", "+    {0}", RIGHT),
        ("patch_recall", "```\n{0}\n```", RIGHT),
        ("patch_recall", "{0} # done", NOTHING),
        ("arithmetic", "first 12, then\n#### {0}", RIGHT),
        ("arithmetic", "12 and 7, so {0}", Grade(score=1.0, right=False)),
        ("arithmetic", "#### {0}\n9", NOTHING),
        ("exact_copy", '"{0}"', RIGHT),
        ("exact_copy", "!!!!!!!!", NOTHING),
        ("json_recall", "```json\n{0}\n```", RIGHT),
        ("json_recall", "{{}}", NOTHING),
        ("tool_choice", '{{"name": "other", "arguments": {{}}}}', NOTHING),
        ("mrcr_like-2", "{1}", NOTHING),  # without the mark in front
        ("mrcr_like-2", "{0} {1}", replace(RIGHT, score=0.999)),
    ],
)
def test_order_case_and_company_count_as_the_rules_say(
    name: str, answer: str, grade: Grade
) -> None:
    item = made(name)
    found = catalog.task(name).grade(answer.format(*item.wanted), item)
    assert found.right is grade.right
    assert found.score == pytest.approx(grade.score, abs=1e-3)


def test_half_an_answer_gets_its_part() -> None:
    settings_of = made("json_recall")
    wanted = json.loads(settings_of.wanted[0])
    missing = dict(list(wanted.items())[:2])
    assert catalog.task("json_recall").grade(json.dumps(missing), settings_of) == Grade(
        score=2 / 3, right=False
    )
    copy = made("exact_copy")
    half = " ".join(copy.wanted[0].split()[:100])
    assert catalog.task("exact_copy").grade(half, copy) == Grade(score=0.5, right=False)
    call = made("tool_choice")
    other = json.dumps({"name": json.loads(call.wanted[0])["name"], "arguments": {}})
    assert catalog.task("tool_choice").grade(other, call) == Grade(score=0.5, right=False)


@pytest.mark.parametrize("task", ["needle-multivalue-4", "arithmetic-40"])
def test_all_values_of_a_key_and_a_long_derivation_are_answered_by_whoever_reads_them(
    task: str,
) -> None:
    for number in range(5):
        item = catalog.task(task).item(seed=5, context=8192, depth=0.5, number=number)
        found = read(texts(item))
        assert found is not None
        grade = catalog.task(task).grade
        assert grade(found.right, item) == Grade(score=1.0, right=True)
        assert not grade(found.wrong, item).right
    assert (
        len(
            catalog.task("needle-multivalue-4")
            .item(seed=5, context=8192, depth=0.5, number=0)
            .wanted
        )
        == 4
    )
