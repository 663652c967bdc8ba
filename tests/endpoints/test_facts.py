from __future__ import annotations

import pytest

from agentload.endpoints.facts import COMMANDED, FACTS, LASTING, OF_A_START, changed
from agentload.endpoints.identity import Identity


def test_every_fact_that_a_server_tells_has_its_place_in_the_table() -> None:
    assert Identity(models=("m",)).facts().keys() == FACTS.keys()
    assert {*COMMANDED} < {*LASTING}
    assert {*LASTING}.isdisjoint(OF_A_START)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ({"version": "0.32.0"}, {"version": "0.33.0"}, ("version 0.32.0 → 0.33.0",)),
        ({"models": ["m"]}, {"models": ["m", "n"]}, ("models m → m, n",)),
        # What moves with every start of one server is no change of it.
        ({"pool_tokens": "100", "max_concurrency": "4.0", "process_start_s": 1.0}, {"pool_tokens": "99", "process_start_s": 2.0}, ()),
        ({"warnings": []}, {"warnings": ["uncalibrated q_scale"]}, ()),
        # A page that did not answer tells nothing.
        ({"kv_cache_dtype": "fp8", "settings": {"eager": True}}, {"kv_cache_dtype": None, "settings": {}}, ()),
        ({"kv_cache_dtype": None}, {"kv_cache_dtype": "fp8"}, ()),
        # /server_info answered once, the log both times.
        ({"settings": {"eager": True, "max_num_seqs": 128}}, {"settings": {"eager": "True"}}, ()),
        (
            {"settings": {"max_num_seqs": 128}},
            {"settings": {"max_num_seqs": 128, "speculative": "eagle"}},
            ("settings.speculative None → eagle",),
        ),
        ({"version": "1" * 90}, {"version": "2"}, (f"version {'1' * 79}… → 2",)),
    ],
)
def test_another_server_is_one_that_tells_another_fact_which_lasts(
    before: dict[str, object], now: dict[str, object], told: tuple[str, ...]
) -> None:
    assert changed(before, now) == told
