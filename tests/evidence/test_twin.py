"""A twin has the pool and the limits of its arm's server,
and none is made of a server whose steps cannot be seen.
"""

from __future__ import annotations

import json

import pytest

from agentload.errors import ProfileError
from agentload.evidence.servers import Server
from agentload.evidence.twin import _geometry
from agentload.kvmath.pool import pool_of
from agentload.run.servers import arms_of
from agentload.run.simulate import identity

LLAMA, GPT = (
    arms_of("llama-3.1-8b-h100", ["fp8"])[0],
    arms_of("gpt-oss-20b-h100", ["fp8-skip-sw"])[0],
)
FACTS = {"max_model_len": 8192, "pool_tokens": "40960", "block_size": "32", "version": "0.32.0+cpu"}


def server(facts: dict[str, object], **other: object) -> Server:
    return Server(arm="a", model="m", machine=None, profile=None, expected={}, facts=facts, **other)  # type: ignore[arg-type]


def test_a_server_that_tells_its_pool_has_a_twin_of_equal_pool_and_limits() -> None:
    told = {**FACTS, "arguments": {"--max-num-seqs": ["12"], "--max-num-batched-tokens": ["1024"]}}
    found = _geometry(server(told))
    assert abs(pool_of(found).tokens - 40960) <= 32
    settings = found.server
    assert (
        settings.max_model_len,
        settings.block_tokens,
        settings.max_num_seqs,
        settings.max_num_batched_tokens,
    ) == (8192, 32, 12, 1024)


@pytest.mark.parametrize("arm", [LLAMA, GPT], ids=lambda arm: arm.model.name)
def test_what_an_emulated_server_tells_gives_its_twin_the_pool_that_its_profile_has(
    arm: object,
) -> None:
    assert isinstance(arm, type(LLAMA))
    facts = json.loads(json.dumps(identity(arm).facts()))
    found = _geometry(server(facts, shape=arm.model))
    assert pool_of(found).tokens == pytest.approx(pool_of(arm).tokens, rel=0.001)
    assert pool_of(found).layout == pool_of(arm).layout


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"arguments": {"--speculative-config": ["{}"]}}, "a speculates"),
        ({"settings": {"speculative": "eagle"}}, "a speculates"),
        ({"arguments": {"--stream-interval": ["8"]}}, "streams several tokens at a time"),
        ({"pool_tokens": None}, "no single server that tells its window and its pool"),
        ({"replicas": 2}, "no single server"),
    ],
)
def test_a_server_whose_steps_cannot_be_seen_has_no_twin(
    facts: dict[str, object], says: str
) -> None:
    with pytest.raises(ProfileError, match=says):
        _geometry(server(FACTS | facts))
