from __future__ import annotations

import pytest

from agentload.dispatch.gateway import (
    MOST_MODELS,
    AnsweringModels,
    deed,
    gateway,
    is_in_one_piece,
    shown_model,
)


@pytest.mark.parametrize(
    ("name", "value", "did"),
    [
        ("x-litellm-cache-key", "5f3a", "response cache (x-litellm-cache-key)"),
        ("x-litellm-cache-key", "None", None),
        ("x-litellm-attempted-fallbacks", "1", "fallback (x-litellm-attempted-fallbacks: 1)"),
        ("x-litellm-attempted-fallbacks", "0", None),
        ("x-litellm-attempted-retries", "2", "retry (x-litellm-attempted-retries: 2)"),
        (
            "x-portkey-cache-status",
            "SEMANTIC HIT",
            "response cache (x-portkey-cache-status: SEMANTIC HIT)",
        ),
        ("x-portkey-cache-status", "SEMANTIC MISS", None),
        ("x-portkey-retry-attempt-count", "-1", None),
        ("x-cache", "HIT, MISS", "response cache (x-cache: HIT, MISS)"),
        ("cf-cache-status", "DYNAMIC", None),
        ("age", "0", None),
        ("age", "17", "response cache (age: 17)"),
        ("x-envoy-attempt-count", "1", None),
        ("x-envoy-attempt-count", "2", "retry (x-envoy-attempt-count: 2)"),
        ("x-litellm-model-id", "7", None),
    ],
)
def test_headers_tell_what_a_gateway_did(name: str, value: str, did: str | None) -> None:
    assert deed([("content-type", "text/event-stream"), (name, value)]) == did


@pytest.mark.parametrize(
    ("tokens", "merged", "is_whole"),
    [
        (100, 99, True),
        (100, 90, True),
        (100, 50, False),
        (100, 0, False),
        (8, 7, False),
        (None, 5, False),
        (100, None, False),
    ],
)
def test_an_answer_came_in_one_piece_if_nearly_all_its_chunks_share_reads(
    tokens: int | None,
    merged: int | None,
    is_whole: bool,  # noqa: FBT001 (a table)
) -> None:
    assert is_in_one_piece(tokens, merged) is is_whole


def test_a_gateway_is_known_by_headers_of_its_own() -> None:
    assert gateway([("server", "uvicorn"), ("x-litellm-version", "1.80.0")]) == "LiteLLM"
    assert gateway([("server", "uvicorn")]) is None


def test_a_number_of_thousands_of_digits_is_a_header_like_any_other() -> None:
    assert deed([("age", "9" * 5_000)]) == f"response cache (age: {'9' * 32})"
    assert deed([("age", "0" * 5_000)]) is None


@pytest.mark.parametrize(
    ("asked", "named", "replaced"),
    [
        ("big", ["big", "small", "big"], [None, "big", None]),
        # the first answer was the gateway's: that is said as soon as it can be known
        ("big", ["small", "big", "small", "big"], [None, "small", "big", None]),
        # a name of the server's own, and a fallback that happened to come first
        ("alias", ["small", "big", "big", "big"], [None, "small", "small", None]),
        ("alias", ["big-2026", "big-2026"], [None, None]),
    ],
)
def test_the_model_that_was_asked_for_or_that_mostly_answers_is_not_another_one(
    asked: str, named: list[str], replaced: list[str | None]
) -> None:
    models = AnsweringModels()
    assert [models.replaced(asked, each) for each in named] == replaced


def test_a_server_that_names_another_model_in_every_answer_takes_no_memory() -> None:
    models = AnsweringModels()
    said = [models.replaced("big", f"{number}" * 1_000) for number in range(100)]
    assert models.replaced("big", "big") is not None
    assert models.replaced("big", "big") is None
    assert said.count(None) == 1
    assert sum(map(len, models._answers["big"])) <= (MOST_MODELS + 1) * 100


def test_a_long_name_of_a_model_keeps_its_end_and_is_not_taken_for_a_key() -> None:
    name = "org/DeepSeek-R1-Distill-Qwen-7B-quantized-w8a8"
    assert shown_model(name) == name
    assert shown_model("x" * 500 + "\u202e-w4a16") == "…" + "x" * 88 + " -w4a16"
