import pytest

from agentload.serve import refusal
from agentload.serve.refusal import RefusedError
from tests.serve.recorded_lines import text

MAX_TOKENS = (
    "max_tokens=9000 cannot be greater than max_model_len=8192. Please request fewer output tokens."
)


@pytest.mark.parametrize(
    ("ours", "recorded"),
    [
        (
            refusal.unreadable(
                "json_invalid",
                "JSON decode error",
                where="body.9",
                value={},
                cause="Expecting value",
            ),
            "badjson",
        ),
        (
            refusal.bad_parameter(
                "max_tokens must be at least 1, got -1.", param="max_tokens", value=-1
            ),
            "badparam",
        ),
        (refusal.bad_parameter(MAX_TOKENS, param="max_tokens", value=9000), "maxtokens"),
        (refusal.unknown_model("nope", served=("tiny-auto",)), "model"),
        (
            refusal.too_long(prompt_tokens=20_000, output_tokens=0, max_model_len=8192),
            "overlong_chat",
        ),
        (refusal.busy(), "queue_full"),
    ],
)
def test_error_bodies_are_the_recorded_ones_to_the_byte(ours: RefusedError, recorded: str) -> None:
    assert ours.body().decode() == text(f"error_{recorded}.json")


@pytest.mark.parametrize(
    ("ours", "recorded"),
    [(refusal.busy(), "queue_full.sse"), (refusal.internal(), "engine_dead.sse")],
)
def test_errors_inside_a_stream_are_the_recorded_ones_to_the_byte(
    ours: RefusedError, recorded: str
) -> None:
    assert ours.event().decode() == text(recorded) + "\n\n"


def test_a_prompt_that_leaves_no_room_for_the_output_is_refused_with_both_counts() -> None:
    no = refusal.too_long(prompt_tokens=12_500, output_tokens=4096, max_model_len=16_384)
    assert no is not None
    assert str(no) == (
        "This model's maximum context length is 16384 tokens. However, you requested 4096 "
        "output tokens and your prompt contains at least "
        "12289 input tokens, for a total of at least 16385 tokens. Please reduce the "
        "length of the input prompt or the number of requested "
        "output tokens. (parameter=input_tokens, value=12289)"
    )


def test_a_prompt_that_just_fits_is_not_refused() -> None:
    assert refusal.too_long(prompt_tokens=4096, output_tokens=4096, max_model_len=8192) is None
