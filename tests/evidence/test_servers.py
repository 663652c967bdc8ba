"""What an arm's server is, from the arms file and from what it said."""

from dataclasses import replace
from typing import Any

import pytest

from agentload.evidence.described import describe_arm, differences
from agentload.evidence.servers import ArmServer
from tests.emulator.arms import shipped


def server(facts: dict[str, Any], **told: Any) -> ArmServer:
    return ArmServer(
        arm="a", model=None, machine=None, profile=None, expected={}, facts=facts, **told
    )


@pytest.mark.parametrize(
    ("told", "settings", "ranks", "gpus"),
    [
        ({}, {}, None, None),
        ({"gpus": 8}, {}, None, 8),
        ({"gpus": 8, "tensor_parallel": 2}, {}, 2, 8),
        ({"tensor_parallel": 2}, {}, 2, 2),
        ({"data_parallel": 3}, {}, None, 3),
        ({"tensor_parallel": 2, "data_parallel": 3}, {}, 2, 6),
        ({}, {"tensor_parallel": 4}, 4, 4),
        ({}, {"tensor_parallel": "4", "data_parallel": "2"}, 4, 8),
        ({"tensor_parallel": 2}, {"tensor_parallel": 4, "data_parallel": 2}, 2, 4),
    ],
)
def test_a_replica_has_the_gpus_that_the_arms_file_says_else_those_that_it_is_split_over(
    told: dict[str, int], settings: dict[str, object], ranks: int | None, gpus: int | None
) -> None:
    found = server({"settings": settings}, **told)
    assert (found.ranks, found.gpu_count) == (ranks, gpus)


def test_replicas_are_those_that_answered_and_one_where_nothing_was_said() -> None:
    assert (server({}).replicas, server({"replicas": 3}).replicas) == (1, 3)


def test_a_server_that_hides_its_command_tells_some_of_it_by_its_settings() -> None:
    settings = {"eager": "True", "attention_backend": "FLASHINFER", "max_num_seqs": 64}
    assert dict(server({"settings": settings}).arguments) == {
        "--enforce-eager": (),
        "--attention-backend": ("FLASHINFER",),
        "--max-num-seqs": ("64",),
    }
    assert dict(server({"settings": {"eager": False}}).arguments) == {}
    told = server({"settings": settings, "arguments": {"--dtype": ["auto"]}})
    assert (told.is_command_told, told.arguments) == (True, {"--dtype": ["auto"]})


@pytest.mark.parametrize(
    ("settings", "config"),
    [
        (
            {"speculative": "ngram", "drafts": "4", "draft_model": "ngram"},
            '{"method": "ngram", "num_speculative_tokens": 4}',
        ),
        (
            {"speculative": "eagle", "drafts": 2, "draft_model": "m/drafter"},
            '{"method": "eagle", "num_speculative_tokens": 2, "model": "m/drafter"}',
        ),
    ],
)
def test_a_server_that_drafts_is_started_with_drafts(
    settings: dict[str, object], config: str
) -> None:
    found = server({"settings": settings})
    assert dict(found.arguments) == {"--speculative-config": (config,)}
    assert describe_arm(found, None).flags == ("--speculative-config", config)


def test_a_simulated_arm_that_drafts_or_offloads_says_with_what_flag() -> None:
    config = '{"method": "ngram", "num_speculative_tokens": 4}'
    drafting = shipped("llama-3.1-8b-h100-priors", "bf16-drafts")
    assert describe_arm(server({}), drafting).flags == ("--speculative-config", config)
    offloading = shipped("llama-3.1-8b-h100-priors", "bf16-offload")
    assert describe_arm(server({}), offloading).flags == ("--kv-offloading-size", "64")
    plain = shipped("llama-3.1-8b-h100-priors", "bf16")
    assert describe_arm(server({}), plain).flags == ()


@pytest.mark.parametrize(("settings", "bits"), [({}, None), ({"quantization": "fp8"}, 8)])
def test_weights_that_are_quantised_by_the_server_have_8_bits_at_most(
    settings: dict[str, object], bits: int | None
) -> None:
    assert server({"settings": settings}).weight_bits == bits


@pytest.mark.parametrize(
    ("named", "seen", "card"),
    [
        ("H100", "NVIDIA H200", "NVIDIA H200"),
        ("H100", "NVIDIA A100-SXM4-80GB, NVIDIA H100 80GB HBM3", "H100"),
        ("H100", "NVIDIA Graphics Device", "H100"),
        (None, "NVIDIA Graphics Device", "NVIDIA Graphics Device"),
        ("H100", None, "H100"),
        (None, None, None),
    ],
)
def test_the_machine_names_its_card_unless_the_arms_file_knows_better(
    named: str | None, seen: str | None, card: str | None
) -> None:
    assert server({"settings": {"gpu": seen}}, gpu=named).card == card


def test_one_card_under_two_names_is_one_card() -> None:
    by_file = server({}, gpu="H200")
    by_machine = replace(server({"settings": {"gpu": "NVIDIA H200"}}, gpu="H200"), arm="b")
    assert differences([by_file, by_machine]) == ()
    other = replace(by_file, arm="b", gpu="H100")
    assert "arms run on different GPUs" in differences([by_file, other])[0]
