from __future__ import annotations

import pytest

from agentload.endpoints.identity import Identity


@pytest.mark.parametrize(("said", "tokens"), [({"block_size": "128"}, 128), ({"block_size": "None"}, None), ({}, None)])
def test_a_cache_block_has_the_tokens_that_the_server_says(said: dict[str, str], tokens: int | None) -> None:
    assert Identity(models=("m",), cache_config=said).cache_block == tokens
