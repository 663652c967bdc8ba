import json

import pytest

from agentload.prompts.count import Image, count, pieces
from agentload.prompts.images import data_url

CALL = {
    "id": "x",
    "type": "function",
    "function": {"name": "read", "arguments": json.dumps({"path": "a b", "lines": [1, "c"]})},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "does it",
        "parameters": {"properties": {"p": {"description": "in"}}},
    },
}


def test_texts_come_in_the_order_a_server_sees_them() -> None:
    messages: list[dict[str, object]] = [
        {"role": "system", "content": "be good"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "hi"},
                {"type": "image_url", "image_url": {"url": "data:x"}},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "x", "content": "done"},
    ]
    assert list(pieces(messages, [TOOL])) == [
        "be good", "does it", "in", "hi", Image(url="data:x", size=(1024, 1024)), "a b", "c", "done",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ({"role": "user", "content": " two\n words  "}, 2),
        ({"role": "user", "content": ""}, 0),
        ({"role": "user"}, 0),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, 3),
        ({"role": "assistant", "tool_calls": [{"function": {"arguments": "{not json at all"}}]}, 4),
        ({"role": "assistant", "tool_calls": "nonsense"}, 0),
        (
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": data_url(7, "i", (56, 29))}}
                ],
            },
            4,
        ),
        (
            {
                "role": "user",
                "content": [
                    {
                        "type": "image_url",
                        "image_url": "data:image/png;base64,%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%",
                    }
                ],
            },
            1369,
        ),
        ({"role": "user", "content": [{"type": "input_audio"}]}, 0),
    ],
)
def test_each_kind_of_content_is_counted_by_its_rule(
    message: dict[str, object], tokens: int
) -> None:
    assert count([message], None) == tokens
