from pathlib import Path

import pytest

from agentload.dispatch.fault import (
    LOOKED_AT,
    Fault,
    body_fault,
    redact,
    retry_after_ns,
    without_secrets,
)
from tests.growth import least_cpu_s

WIRE = Path(__file__).parent.parent / "fixtures" / "wire"
PROMPT = "my diary of the third of May, which nobody may read"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            (WIRE / "vllm_wrong_model.json").read_bytes(),
            Fault(
                kind="NotFoundError",
                message="The model `nope` does not exist. Valid aliases: tiny.",
                code=404,
            ),
        ),
        (
            (WIRE / "vllm_overlong.json").read_bytes(),
            Fault(
                kind="BadRequestError",
                message="This model's maximum context length is 8192 tokens. However, your prompt "
                "contains at least 8193 input tokens, "
                "which exceeds this limit even without any output tokens. Please reduce "
                "the length of the …",
                code=400,
            ),
        ),
        (
            (WIRE / "transformers_unknown_field.json").read_bytes(),
            Fault(
                kind="detail",
                message="Unexpected fields in the request: {'return_token_ids', 'ignore_eos', "
                "'min_tokens'}",
            ),
        ),
        (
            b'{"error":{"message":"later","code":"503"}}',
            Fault(kind="error", message="later", code=503),
        ),
        (b'{"error":null}', Fault(kind="error", message='{"error":null}')),
        (
            b"<html>502\n<b>Bad gateway</b>\x00</html>",
            Fault(kind="error", message="<html>502 <b>Bad gateway</b> </html>"),
        ),
        (b"", Fault(kind="error", message="")),
    ],
)
def test_an_error_body_is_read_whoever_wrote_it(body: bytes, expected: Fault) -> None:
    assert body_fault(body) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            f"{{'loc': 'body.9', 'input': '{PROMPT}', 'ctx': 1}}",
            "{'loc': 'body.9', 'input': '…', 'ctx': 1}",
        ),
        (f'"input": "{PROMPT}, cut off by the ser', '"input": "…"'),
        ("'it's a long story that I would rather keep' is no role", "'…' is no role"),
        ("'I\\'d say \\'no\\' to each and every one of them' is no role", "'…' is no role"),
        ("Incorrect API key provided: sk-proj-abcDEF123456", "Incorrect API key provided: ***"),
        (
            "header Authorization: Bearer abc.def-ghi was wrong",
            "header Authorization: *** was wrong",
        ),
        ("no tenant 0123456789abcdef0123456789abcdef here", "no tenant *** here"),
        ("the model's context isn't the server's", "the model's context isn't the server's"),
    ],
)
def test_prompts_and_keys_that_a_server_echoes_are_not_kept(message: str, expected: str) -> None:
    assert redact(message) == expected


def test_a_message_is_one_line_of_at_most_200_characters() -> None:
    line = redact("so long\na message " * 40)
    assert (len(line), line[:26], line[-1]) == (200, "so long a message so long ", "…")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("wrong key plainkeyword!", "wrong key ***!"),
        ("wrong key plainkey…", "wrong key ***…"),
        ("wrong key pla…", "wrong key ***…"),
        ("wrong key pl…", "wrong key pl…"),
        ("plain words of a plainkeyword and a plainkeywor…", "plain words of a *** and a ***…"),
        ("nothing to hide…", "nothing to hide…"),
    ],
)
def test_a_secret_is_left_out_also_where_the_text_was_cut_within_it(text: str, shown: str) -> None:
    assert without_secrets(text, ("plainkeyword",)) == shown


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ([], None),
        ([("retry-after", "20")], 20),
        ([("retry-after", " 3600 ")], 60),
        ([("retry-after", "9" * 5000)], 60),
        ([("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")], None),
        ([("retry-after", "-1")], None),
    ],
)
def test_a_server_is_left_alone_for_as_many_seconds_as_it_asks_but_no_longer_than_a_minute(
    headers: list[tuple[str, str]], wait_s: int | None
) -> None:
    assert retry_after_ns(headers) == (None if wait_s is None else wait_s * 1_000_000_000)


NEVER_READ = [
    b"[" * 100_000 + b"]" * 100_000,
    b'{"error":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
    b'{"detail":{"x":' + b"9" * 4_000 + b"}}",
    b'{"detail":{"x":' + b"9" * 5_000 + b"}}",
    b'{"error":{"message":"m","code":"' + b"9" * 5_000 + b'"}}',
    b'{"error":{"message":"m","code":' + b"9" * 4_000 + b"}}",
    b'{"error":"\\ud800"}',
    b"\xff\xfe\x00" * 1_000,
    b"\x00" * 100,
    b"[{}" + b",{}" * 300_000 + b"]",
]


@pytest.mark.parametrize("body", NEVER_READ, ids=range(len(NEVER_READ)))
def test_an_error_body_that_no_parser_can_read_is_an_error_all_the_same(body: bytes) -> None:
    found = body_fault(body)
    assert len(found.text) <= 300
    assert found.code is None


def test_a_message_is_cut_before_it_is_searched_for_secrets() -> None:
    message = ("it's 'a " + "b" * 40) * 400_000
    assert len(redact(message)) <= 200
    short_s = least_cpu_s(lambda: redact(message[: 1 << 20]))
    assert least_cpu_s(lambda: redact(message)) < 4 * short_s


@pytest.mark.parametrize("before", range(LOOKED_AT - 60, LOOKED_AT + 1, 5))
def test_no_key_is_half_shown_where_a_long_message_was_cut(before: int) -> None:
    quoted = "'" + "x" * (before - 3) + "' "
    assert redact(
        f"{quoted}sk-abcdefgh0123456789abcdefgh0123456789 and more" + "y " * 9_000
    ).startswith("'…'")
    assert "abc" not in redact(
        f"{quoted}sk-abcdefgh0123456789abcdefgh0123456789 and more" + "y " * 9_000
    )


def test_a_long_message_of_one_word_is_read_in_no_time() -> None:
    assert least_cpu_s(lambda: redact("x" * 5_000)) < 0.005
