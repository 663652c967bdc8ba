from __future__ import annotations

import pytest

from agentload.endpoints.agreement import Agreement, agreement
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.expectations import checks
from agentload.endpoints.identity import Identity
from agentload.endpoints.settings import settings
from agentload.errors import EndpointError

FP8 = {
    "cache_dtype": "fp8",
    "kv_cache_dtype_skip_layers": "['sliding_window']",
    "enable_prefix_caching": "True",
    "kv_cache_size_tokens": "9",
}


@pytest.mark.parametrize(
    ("name", "wanted", "agrees"),
    [
        ("kv_cache_dtype", "fp8_e4m3", True),
        ("kv_cache_dtype", "fp8_e5m2", False),
        ("kv_cache_dtype", "bf16", False),
        ("skip_layers", ["sliding_window"], True),
        ("skip_layers", "sliding_window", True),
        ("skip_layers", [], False),
        ("prefix_caching", True, True),
        ("prefix_caching", False, False),
        ("version", "0.32", True),
        ("version", "0.3", False),
        ("max_model_len", 8192, True),
        ("max_model_len", 4096, False),
        ("backend", "FLASHINFER", None),
    ],
)
def test_an_expectation_agrees_disagrees_or_is_not_answered(name: str, wanted: object, agrees: object) -> None:
    facts = Identity(models=("m",), version="0.32.0+cpu", max_model_len=8192, cache_config=FP8).facts()
    assert [check.agrees for check in checks({name: wanted}, facts)] == [agrees]


def test_a_dtype_that_nobody_set_is_that_of_the_weights() -> None:
    assert [check.agrees for check in checks({"kv_cache_dtype": "bfloat16", "skip_layers": []}, {"kv_cache_dtype": "auto"})] == [True, True]


def test_a_wrong_label_on_a_url_stops_the_run_and_names_arm_and_fact() -> None:
    arm = Endpoint(name="fp8", url="http://x/v1", expect={"kv_cache_dtype": "fp8", "backend": "FLASHINFER"})
    found = agreement([arm], {"fp8": Identity(models=("m",), cache_config={"cache_dtype": "auto"})})
    assert found == Agreement(
        mismatches=("fp8: kv_cache_dtype: expected fp8, the server says auto",),
        unknown=("fp8: backend: expected FLASHINFER, the server does not say",),
        unseen=("fp8: no metrics at http://x/metrics: KV usage, preemptions and requests of others are not seen",),
    )
    with pytest.raises(EndpointError, match="expected fp8, the server says auto") as caught:
        found.require()
    assert "--force" in str(caught.value.hint)


def test_two_servers_that_say_the_same_of_themselves_are_an_a_a_test_but_an_arm_and_its_control_are_not_compared() -> None:
    arms = [Endpoint(name=name, url=f"http://{host}/v1") for name, host in (("a", "x"), ("b", "y"), ("a-control", "x"))]
    same = Identity(models=("m",), cache_config=FP8, counters={"process_start_s": 1.0})
    other = Identity(models=("m",), cache_config=FP8, counters={"process_start_s": 2.0})
    found = agreement(arms, {"a": same, "b": other, "a-control": same})
    assert found.equal == (("a", "b"), ("b", "a-control"))
    silent = Identity(models=("m",))
    assert agreement(arms, {"a": silent, "b": silent, "a-control": silent}).equal == ()


def test_what_cannot_be_seen_is_a_caveat_that_names_the_arm_and_what_stands_in() -> None:
    arms = [Endpoint(name="a", url="http://me:secret@x/v1"), Endpoint(name="b", url="http://y/v1", log="b.log")]
    behind = Identity(models=("m",), counters={"running": 0.0}, gateway="LiteLLM")
    assert agreement(arms[:1], {"a": behind}).caveats() == (
        "a: LiteLLM stands between us and the server: its time is in every latency, and what it does to calls voids blocks",
    )
    assert agreement(arms, dict.fromkeys(("a", "b"), Identity(models=("m",)))).caveats() == (
        "a: no metrics at http://***@x/metrics: KV usage, preemptions and requests of others are not seen",
        "b: no metrics at http://y/metrics: its log stands in for load and KV usage, requests of others are not seen",
    )


def test_settings_come_from_the_open_part_of_a_development_server() -> None:
    document = {
        "vllm_config": {
            "attention_config": {"backend": "FLASHINFER"},
            "scheduler_config": {"max_num_seqs": 128},
            "speculative_config": None,
        }
    }
    assert settings(document) == {"attention_backend": "FLASHINFER", "max_num_seqs": 128}
    assert settings({"detail": "Not Found"}) == {}
