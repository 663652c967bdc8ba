from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentload.endpoints.agreement import Agreement, agreement, expectations
from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.endpoints.facts import (
    COMMANDED,
    FACTS,
    LASTING,
    OF_A_START,
    changes,
    checks,
    is_same_configuration,
)
from agentload.endpoints.identity import Identity, settings
from agentload.errors import EndpointError

FP8 = {
    "cache_dtype": "fp8",
    "kv_cache_dtype_skip_layers": "['sliding_window']",
    "enable_prefix_caching": "True",
    "kv_cache_size_tokens": "900",
}


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
        (
            {"pool_tokens": "100", "max_concurrency": "4.0", "process_start_s": 1.0},
            {"pool_tokens": "99", "process_start_s": 2.0},
            (),
        ),
        ({"warnings": []}, {"warnings": ["uncalibrated q_scale"]}, ()),
        # A page that did not answer tells nothing.
        (
            {"kv_cache_dtype": "fp8", "settings": {"eager": True}},
            {"kv_cache_dtype": None, "settings": {}},
            (),
        ),
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
    assert changes(before, now) == told


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
def test_an_expectation_agrees_disagrees_or_is_not_answered(
    name: str, wanted: object, agrees: object
) -> None:
    facts = Identity(
        models=("m",), version="0.32.0+cpu", max_model_len=8192, cache_config=FP8
    ).facts()
    assert [check.agrees for check in checks({name: wanted}, facts)] == [agrees]


def test_a_dtype_that_nobody_set_is_that_of_the_weights() -> None:
    assert [
        check.agrees
        for check in checks(
            {"kv_cache_dtype": "bfloat16", "skip_layers": []}, {"kv_cache_dtype": "auto"}
        )
    ] == [True, True]


def test_a_wrong_label_on_a_url_stops_the_run_and_names_arm_and_fact() -> None:
    arm = Endpoint(
        name="fp8", url="http://x/v1", expect={"kv_cache_dtype": "fp8", "backend": "FLASHINFER"}
    )
    found = agreement([arm], {"fp8": Identity(models=("m",), cache_config={"cache_dtype": "auto"})})
    assert found == Agreement(
        mismatches=("fp8: kv_cache_dtype: expected fp8, the server says auto",),
        unknown=("fp8: backend: expected FLASHINFER, the server does not say",),
        unseen=(
            (
                "fp8: no metrics at http://x/metrics: KV usage, preemptions and requests of "
                "others are not seen"
            ),
        ),
    )
    with pytest.raises(EndpointError, match="expected fp8, the server says auto") as caught:
        found.require()
    assert "--force" in str(caught.value.hint)


LAUNCHED = Launch(command=("vllm", "serve", "m", "--kv-cache-dtype", "fp8"))
HERE = Endpoint(name="a", url="http://x/v1")


@pytest.mark.parametrize(
    ("one", "other", "theirs", "is_same"),
    [
        (HERE, Endpoint(name="b", url="http://y/v1"), {"counters": {"process_start_s": 2.0}}, True),
        # Started in turn on one port, typed twice, and spelt in two ways.
        (
            replace(HERE, launch=LAUNCHED),
            replace(HERE, name="b", launch=Launch(command=("vllm", "serve", "m"))),
            {},
            True,
        ),
        (HERE, replace(HERE, name="b"), {}, True),
        (
            HERE,
            Endpoint(name="b", url="http://y/v1"),
            {"cache_config": {**FP8, "cache_dtype": "fp8_e4m3"}},
            True,
        ),
        # A start finds some blocks more or fewer; another budget is another configuration.
        (
            HERE,
            Endpoint(name="b", url="http://y/v1"),
            {"cache_config": {**FP8, "kv_cache_size_tokens": "905"}},
            True,
        ),
        (
            HERE,
            Endpoint(name="b", url="http://y/v1"),
            {"cache_config": {**FP8, "kv_cache_size_tokens": "800"}},
            False,
        ),
        (
            HERE,
            Endpoint(name="b", url="http://y/v1"),
            {"cache_config": {**FP8, "cache_dtype": "auto"}},
            False,
        ),
        (replace(HERE, model="m"), Endpoint(name="b", url="http://x/v1", model="n"), {}, False),
        (HERE, replace(HERE, name="a@aa"), {}, False),
    ],
)
def test_two_arms_that_nothing_tells_apart_are_an_a_a_test(
    one: Endpoint, other: Endpoint, theirs: dict[str, Any], *, is_same: bool
) -> None:
    said = Identity(models=("m",), cache_config=FP8, counters={"process_start_s": 1.0})
    found = agreement([one, other], {one.name: said, other.name: replace(said, **theirs)})
    assert found.equal == ((("a", "b"),) if is_same else ())


def test_servers_that_say_nothing_are_not_called_equal_but_one_url_without_a_launch_is_one_server() -> (
    None
):
    silent = dict.fromkeys(("a", "b"), Identity(models=("m",)))
    assert agreement([HERE, Endpoint(name="b", url="http://y/v1")], silent).equal == ()
    started = [
        replace(HERE, launch=LAUNCHED),
        replace(HERE, name="b", launch=Launch(command=("vllm", "serve", "m"))),
    ]
    assert agreement(started, silent).equal == ()
    assert agreement([HERE, replace(HERE, name="b")], silent).equal == (("a", "b"),)


def test_what_differs_beside_what_is_compared_is_a_caveat_unless_the_arms_file_means_it() -> None:
    arms = [HERE, Endpoint(name="b", url="http://y/v1")]
    said = {
        "a": Identity(
            models=("m",),
            version="0.32.0",
            max_model_len=8192,
            settings={"max_num_batched_tokens": 2048},
            counters={"requests_done": 0.0},
        ),
        "b": Identity(
            models=("m",),
            version="0.33.0",
            max_model_len=4096,
            settings={"max_num_batched_tokens": 8192},
            counters={"requests_done": 0.0},
        ),
    }
    assert agreement(arms, said).caveats() == (
        "arms differ in version (a 0.32.0, b 0.33.0): a difference between them may be that",
        "arms differ in max_model_len (a 8192, b 4096): a difference between them may be that",
        (
            "arms differ in max_num_batched_tokens (a 2048, b 8192): a difference between them "
            "may be that"
        ),
    )
    meant = [
        replace(
            arm,
            expect={
                "version": said[arm.name].version,
                "max_model_len": said[arm.name].max_model_len,
            },
        )
        for arm in arms
    ]
    meant[1] = replace(
        meant[1], launch=Launch(command=("vllm", "serve", "m", "--max-num-batched-tokens=8192"))
    )
    assert agreement(meant, said) == Agreement()


def test_what_cannot_be_seen_is_a_caveat_that_names_the_arm_and_what_stands_in() -> None:
    arms = [
        Endpoint(name="a", url="http://me:secret@x/v1"),
        Endpoint(name="b", url="http://y/v1", log="b.log"),
    ]
    behind = Identity(models=("m",), counters={"requests_done": 0.0}, gateway="LiteLLM")
    assert agreement(arms[:1], {"a": behind}).caveats() == (
        (
            "a: LiteLLM is between us and the server: its time is in every latency, and what "
            "it does to calls invalidates blocks"
        ),
    )
    uncounted = Identity(models=("m",), counters={"running": 0.0})
    assert agreement(arms[:1], {"a": uncounted}).caveats() == (
        "a: no count of finished requests at http://***@x/metrics: requests of others are not seen",
    )
    assert agreement(arms, dict.fromkeys(("a", "b"), Identity(models=("m",)))).caveats() == (
        (
            "a: no metrics at http://***@x/metrics: KV usage, preemptions and requests of "
            "others are not seen"
        ),
        (
            "b: no metrics at http://y/metrics: its log stands in for load and KV usage, "
            "requests of others are not seen"
        ),
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
    drafting = {"method": "eagle", "num_speculative_tokens": 2, "model": "m/drafter", "x": {}}
    assert settings({"vllm_config": {"speculative_config": drafting}}) == {
        "speculative": "eagle",
        "drafts": 2,
        "draft_model": "m/drafter",
    }


def test_servers_that_draft_otherwise_are_not_the_same() -> None:
    def drafting(**settings: object) -> dict[str, object]:
        return {"kv_cache_dtype": "auto", "pool_tokens": 1000, "settings": settings}

    none, four, eight = drafting(), drafting(drafts=4), drafting(drafts=8)
    assert is_same_configuration(four, drafting(drafts=4))
    assert not is_same_configuration(none, four)
    assert not is_same_configuration(four, eight)
    assert changes(four, eight) == ("settings.drafts 4 → 8",)


@pytest.mark.parametrize(
    ("name", "said", "wrong"),
    [
        ("fp8", "bfloat16", "fp8: kv_cache_dtype: expected fp8, the server says bfloat16"),
        ("fp8", "auto", "fp8: kv_cache_dtype: expected fp8, the server says auto"),
        (
            "fp8-skip-sw",
            "bfloat16",
            "fp8-skip-sw: kv_cache_dtype: expected fp8, the server says bfloat16",
        ),
        ("bf16", "fp8_e4m3", "bf16: kv_cache_dtype: expected bfloat16, the server says fp8_e4m3"),
        ("fp8", "fp8_e4m3", None),
        ("bf16", "auto", None),
        ("fp8", None, None),  # nobody knows: it is not called wrong, and no dtype was read
        ("fp8-weights", "bfloat16", None),  # a name of the user's own
        ("prod", "bfloat16", None),
    ],
)
def test_an_arm_is_held_to_the_dtype_that_it_is_called_by(
    name: str, said: str | None, wrong: str | None
) -> None:
    identity = Identity(models=("m",), cache_config={} if said is None else {"cache_dtype": said})
    endpoint = Endpoint(name=name, url="http://127.0.0.1:1/v1")
    found = agreement([endpoint], {name: identity})
    assert found.mismatches == (() if wrong is None else (wrong,))
    assert found.unknown == ()
    assert expectations(endpoint, identity.facts()).keys() == (
        {"kv_cache_dtype"} if wrong else set()
    )
    if wrong is not None:
        with pytest.raises(EndpointError, match="kv_cache_dtype"):
            found.require()
        meant = replace(endpoint, expect={"kv_cache_dtype": said})
        assert agreement([meant], {name: identity}).mismatches == ()


def test_another_driver_under_a_server_is_another_server() -> None:
    def answer(driver: str) -> dict[str, object]:
        env = {"nvidia_driver_version": driver, "cuda_runtime_version": "12.9.86", "os": "Linux"}
        return {"vllm_config": {"scheduler_config": {"max_num_seqs": 128}}, "system_env": env}

    before, now = ({"settings": settings(answer(each))} for each in ("575.51", "580.119"))
    assert before["settings"] == {"max_num_seqs": 128, "driver": "575.51", "cuda": "12.9.86"}
    assert changes(before, now) == ("settings.driver 575.51 → 580.119",)


@pytest.mark.parametrize(
    ("named", "there", "wrong"),
    [
        (
            "H100",
            "GPU 0: NVIDIA H200",
            "bf16: gpu: expected H100, the server's machine has NVIDIA H200",
        ),
        ("H200", "GPU 0: NVIDIA H200\nGPU 1: NVIDIA H200", None),
        ("H100", "\nGPU 0: NVIDIA A100-SXM4-80GB\nGPU 1: NVIDIA H100 80GB HBM3", None),
        (None, "GPU 0: NVIDIA H200", None),
        ("H100", "GPU 0: NVIDIA H100 PCIe", None),
        ("A100-80GB", "GPU 0: NVIDIA A100 80GB PCIe", None),
        ("A100", "GPU 0: NVIDIA A100-SXM4-40GB", None),
        ("H100", "GPU 0: Some Card", None),
        ("H100", "No CUDA", None),
    ],
)
def test_a_card_that_the_arms_file_names_is_the_one_that_the_server_has(
    named: str | None, there: str, wrong: str | None
) -> None:
    told = settings({"vllm_config": {}, "system_env": {"nvidia_gpu_models": there}})
    identity = Identity(models=("m",), settings=told)
    endpoint = Endpoint(name="bf16", url="http://127.0.0.1:1/v1", gpu=named)
    found = agreement([endpoint], {"bf16": identity}).mismatches
    assert [each for each in found if "gpu" in each] == ([] if wrong is None else [wrong])
