from __future__ import annotations

import pytest

from agentload.dispatch.gateway import deed, gateway, is_in_one_piece


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
