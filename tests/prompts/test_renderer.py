import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentload.model.trace import Role, Segment, TurnRef, image_tokens
from agentload.prompts.count import count
from agentload.prompts.renderer import Prompt, Renderer
from agentload.prompts.words import text

ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool", "tools")


def said(
    role: Role, tokens: int, key: str = "k", **options: Any
) -> Segment:  # any field of a segment
    return Segment(role=role, tokens=tokens, key=key, **options)


def image(key: str, size: tuple[int, int]) -> Segment:
    return Segment(role="image", tokens=image_tokens(size), key=key, pixels=size)


def render(*context: Segment, salt: str = "s1") -> Prompt:
    return Renderer(seed=7).render(context, salt=salt)


def decoded(prompt: Prompt) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
    return json.loads(prompt.messages), None if prompt.tools is None else json.loads(prompt.tools)


segments = st.builds(
    said, st.sampled_from(ROLES), st.integers(0, 700), st.text(max_size=6)
) | st.builds(image, st.text(max_size=3), st.tuples(st.integers(1, 60), st.integers(1, 60)))


@given(st.lists(segments, max_size=12))
def test_a_prompt_has_exactly_the_tokens_of_its_segments_as_the_emulator_counts_them(
    context: list[Segment],
) -> None:
    prompt = render(*context)
    messages, tools = decoded(prompt)
    assert prompt.tokens == sum(segment.tokens for segment in context) == count(messages, tools)


@given(st.lists(segments, min_size=1, max_size=8))
def test_a_salt_changes_the_first_eight_tokens_and_no_length(context: list[Segment]) -> None:
    one, other = render(*context, salt="s1"), render(*context, salt="s2")
    assert one.tokens == other.tokens
    assert len(one.messages) == len(other.messages)
    first = context[0]
    if first.role in {"system", "user"} and first.tokens > 8:
        assert decoded(one)[0][0]["content"] != decoded(other)[0][0]["content"]
        assert (
            len(
                [
                    (a, b)
                    for a, b in zip(one.messages.split(), other.messages.split(), strict=True)
                    if a != b
                ]
            )
            <= 8
        )


def test_tools_behind_a_system_prompt_are_salted_too_as_a_template_may_put_them_before_it() -> None:
    context = [said("system", 40, "sys"), said("tools", 90, "t"), said("user", 5, "u")]
    one, other = render(*context, salt="s1"), render(*context, salt="s2")
    assert one.tokens == other.tokens
    assert one.tools is not None
    assert other.tools is not None
    differ = [a != b for a, b in zip(one.tools.split(), other.tools.split(), strict=True)]
    assert 1 <= sum(differ) <= 8
    assert differ.index(True) == 0  # of the first description


def test_recorded_tools_keep_their_words() -> None:
    kept = '[{"type":"function","function":{"name":"read","description":"Read a file."}}]'
    context = [said("system", 40, "sys"), said("tools", 90, "t", text=kept)]
    assert render(*context, salt="s1").tools == render(*context, salt="s2").tools == kept.encode()


def test_a_message_is_the_text_of_its_key_behind_the_salt() -> None:
    messages, _ = decoded(render(said("system", 20, "sys"), said("user", 5, "u")))
    salted, plain = messages[0]["content"].split(), text(7, "sys", 20).split()
    assert salted[8:] == plain[8:]
    assert salted[:8] == text(7, "salt s1", 8).split()
    assert messages[1] == {"role": "user", "content": text(7, "u", 5)}


def test_tool_results_answer_calls_of_the_message_before_them() -> None:
    messages, _ = decoded(
        render(said("user", 9), said("assistant", 12), said("tool", 4, "r1"), said("tool", 4, "r2"))
    )
    calls = messages[1]["tool_calls"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in calls] == [message["tool_call_id"] for message in messages[2:]]
    assert len({call["id"] for call in calls}) == 2
    passed = [json.loads(call["function"]["arguments"])["input"].split() for call in calls]
    assert [len(words) for words in passed] == [3, 3]
    assert [*messages[1]["content"].split(), *passed[0], *passed[1]] == text(7, "k", 12).split()


def test_two_results_of_one_key_still_answer_two_calls() -> None:
    messages, _ = decoded(
        render(said("user", 9), said("assistant", 12), said("tool", 4, "r"), said("tool", 4, "r"))
    )
    assert len({call["id"] for call in messages[1]["tool_calls"]}) == 2


def test_a_result_whose_call_was_compacted_away_becomes_user_text() -> None:
    messages, _ = decoded(render(said("system", 9), said("tool", 4, "r"), said("user", 3, "u")))
    assert [message["role"] for message in messages] == ["system", "user"]
    assert messages[1]["content"] == text(7, "r", 4) + text(7, "u", 3)


def test_a_plant_stands_at_its_place_instead_of_as_many_tokens() -> None:
    prompt = render(
        said("user", 9), said("tool", 104, "log", plant="The code is ZX-4417.", at=0.25)
    )
    words = decoded(prompt)[0][0]["content"].split()[9:]
    assert words[25:29] == ["The", "code", "is", "ZX-4417."]
    assert words[:25] + words[29:] == text(7, "log", 100).split()


def test_a_literal_text_is_kept_and_escaped() -> None:
    prompt = render(
        said("system", 9), said("user", 4, "u", text='say "hi"\nto é'), said("user", 1, "v")
    )
    assert decoded(prompt)[0][1]["content"] == 'say "hi"\nto é\n' + text(7, "v", 1)


def test_a_live_answer_is_cut_or_filled_to_the_tokens_of_its_place() -> None:
    live = {"source": TurnRef(session="s", turn=0)}
    messages, _ = decoded(
        render(
            said("system", 9),
            said("user", 3, "u", text="one two three four", **live),
            said("assistant", 2),
        )
    )
    assert messages[1]["content"] == "one two three\n"
    messages, _ = decoded(render(said("system", 9), said("user", 4, "u", text="one two", **live)))
    assert messages[1]["content"] == "one two " + text(7, "u", 2)


def test_tools_are_schemas_with_unique_names_even_from_two_segments() -> None:
    _, tools = decoded(
        render(said("system", 9), said("tools", 12_000, "t"), said("tools", 1_300, "mcp"))
    )
    assert tools is not None
    names = [tool["function"]["name"] for tool in tools]
    assert len(names) == 22 == len(set(names))
    assert {tool["type"] for tool in tools} == {"function"}
    assert tools[0]["function"]["parameters"]["required"] == ["input"]


def test_images_are_parts_of_the_users_message() -> None:
    messages, _ = decoded(
        render(
            said("user", 3, "u"), image("i", (56, 56)), image("j", (28, 28)), said("user", 2, "v")
        )
    )
    assert [part["type"] for part in messages[0]["content"]] == [
        "text",
        "image_url",
        "image_url",
        "text",
    ]


def test_a_context_that_grows_keeps_the_bytes_it_had() -> None:
    renderer = Renderer(seed=7)
    context = (said("system", 900, "sys"), said("tools", 900, "t"), said("user", 20, "u"))
    grown = (*context, said("assistant", 30, "a"), said("tool", 200, "r"))
    assert renderer.render(grown, salt="s").messages.startswith(
        renderer.render(context, salt="s").messages[:-1]
    )


def test_a_renderer_with_no_room_to_remember_writes_the_same() -> None:
    context = (
        said("system", 900, "sys"),
        said("tools", 900, "t"),
        said("user", 20, "u"),
        image("i", (30, 30)),
    )
    forgetful = Renderer(seed=7, cache_bytes=100)
    assert [forgetful.render(context, salt="s") for _ in range(2)] == [
        Renderer(seed=7).render(context, salt="s")
    ] * 2


@given(
    one=st.lists(segments, max_size=6), other=st.lists(segments, max_size=6), is_same=st.booleans()
)
def test_a_prompt_is_named_by_its_messages_and_tools_alone(
    *, one: list[Segment], other: list[Segment], is_same: bool
) -> None:
    first = render(*one)
    second = render(*one) if is_same else render(*other)
    same = decoded(first) == decoded(second)
    assert (first.hash == second.hash) == same
    assert first.size == sum(len(piece.json) for piece in (*first.spoken, *first.written))
