"""Rules about the KV pool and what it is shared for."""

from __future__ import annotations

from dataclasses import replace

from advisor import rulebook
from advisor.estimate import Estimate
from advisor.evidence import Telemetry
from advisor.rules import capacity_bound, one_of_two, pool_never_filled
from advisor.verdict import Capacity
from tests.advisor.cases import BF16, FP8, bare, compared
from tests.advisor.rules.asking import case, chat_class, findings, with_telemetry


def test_a_load_that_fills_the_pool_is_bound_by_it() -> None:
    evidence = bare(workloads=(chat_class(working_set_tokens=400_000.0),))
    server, chat = findings(capacity_bound, evidence)
    assert (server.workload, chat.workload) == (None, "chat")
    assert "95% of the pool of bf16" in chat.message
    assert "2.00x the tokens" in chat.message
    assert (
        findings(capacity_bound, bare(workloads=(chat_class(working_set_tokens=40_000.0),))) == []
    )


def test_preemptions_say_that_the_pool_binds_whatever_the_sizes_say() -> None:
    evidence = compared(effect=0.0, workloads=(chat_class(working_set_tokens=40_000.0),))
    found = findings(capacity_bound, with_telemetry(evidence, "bf16", Telemetry(preemptions=12.0)))
    assert [each.workload for each in found] == ["chat"]


def test_of_two_features_that_exclude_each_other_the_better_is_kept() -> None:
    alone = replace(FP8, prefix_caching=False)
    (worse,) = findings(one_of_two, compared(effect=0.4, arms=(BF16, alone)))
    assert (worse.kind, "keep prefix caching" in worse.message) == ("opposes", True)
    (better,) = findings(one_of_two, compared(effect=-0.2, arms=(BF16, alone)))
    assert (better.kind, "keep the cache dtype of fp8" in better.message) == ("supports", True)
    assert findings(one_of_two, compared(effect=-0.2)) == []


def test_a_pool_that_stayed_empty_says_nothing_about_capacity() -> None:
    seen = (("bf16", Telemetry(pool_filled_share=0.9)), ("fp8", Telemetry(pool_filled_share=0.1)))
    (found,) = findings(pool_never_filled, bare(server=seen))
    assert found.message.startswith("The KV pool was full for 10% of the run on fp8")
    assert (
        findings(
            pool_never_filled, bare(server=seen, workloads=(chat_class(working_set_tokens=1000.0),))
        )
        == []
    )


def test_capacity_that_was_measured_next_to_the_run_is_not_called_unknown() -> None:
    seen = (("bf16", Telemetry(pool_filled_share=0.0)), ("fp8", Telemetry(pool_filled_share=0.0)))
    agents = Estimate(value=18.0, low=15.0, high=21.0, n=3, unit="agents", method="trials")
    known = Capacity(
        arm="fp8",
        workload=None,
        agents_per_gpu=agents,
        replicas_at_peak=None,
        next_replica_at_agents=None,
        reason="",
    )
    binding = bare(server=seen, workloads=(chat_class(working_set_tokens=400_000.0),))
    (open_arm,) = rulebook.findings(
        pool_never_filled.check, replace(case(binding), capacity=(known,))
    )
    assert open_arm.message.startswith(
        "The KV pool was full for 0% of the run on bf16: no statement"
    )
    both = (known, replace(known, arm="bf16"))
    assert (
        list(rulebook.findings(pool_never_filled.check, replace(case(binding), capacity=both)))
        == []
    )
    bound = rulebook.findings(capacity_bound.check, replace(case(binding), capacity=both))
    assert [("long runs" in each.message, each.next_step) for each in bound] == [
        (False, None),
        (False, None),
    ]
