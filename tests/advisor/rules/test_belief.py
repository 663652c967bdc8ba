"""Rules about how far a measurement can be believed, and what it lacks."""

from __future__ import annotations

from dataclasses import replace

from advisor.evidence import (
    AccuracyBucket,
    Deployment,
    Prior,
)
from advisor.policy import Policy, Slo
from advisor.rules import (
    machine_or_arm,
    missing_evidence,
    noise_floor,
    other_gpu,
    same_question_twice,
    slo_broken,
)
from tests.advisor.cases import BF16, FP8, H100, bare, compared
from tests.advisor.rules.asking import findings


def test_priors_of_another_gpu_are_shown_and_decide_nothing() -> None:
    prior = Prior(what="break_even_tokens", arm="fp8", value=7010.0, unit="tokens", gpu="H100-SXM", source="vLLM blog 2026-04-22")
    (found,) = findings(other_gpu, bare(priors=(prior, replace(prior, gpu="B200-SXM"))))
    assert found.message.startswith("1 published figures shown beside yours come from B200-SXM, not from H100-SXM")
    assert findings(other_gpu, bare(priors=(prior,))) == []


def test_machines_that_never_changed_places_are_named() -> None:
    two = Deployment(gpu=H100, machines=("a", "b"))
    arms = (replace(BF16, machine="a"), replace(FP8, machine="b"))
    (found,) = findings(machine_or_arm, compared(effect=0.0, deployment=two, arms=arms))
    assert "cannot tell machine from arm below 5%" in found.message
    assert findings(machine_or_arm, compared(effect=0.0, deployment=replace(two, swapped=True), arms=arms)) == []


def test_without_a_control_the_floor_is_unknown() -> None:
    (found,) = findings(noise_floor, compared(effect=0.0))
    assert (found.kind, found.next_command) == ("opposes", "agentload replay TRACE --endpoints ENDPOINTS --aa bf16")


def test_what_a_server_changes_by_itself_stands_beside_what_an_arm_changes() -> None:
    asked = AccuracyBucket(arm="fp8", task="needle", context_tokens=8192.0, both=180, reference_only=6, arm_only=4, neither=10)
    again = replace(asked, arm="bf16", reference_only=5, arm_only=5)
    (found,) = findings(same_question_twice, bare(accuracy=(asked,), aa_accuracy=(again,)))
    assert (found.kind, found.arm, found.leg, found.next_command) == ("informs", "bf16", "safe", None)
    assert found.message == "bf16 asked twice changed 5.0% of 200 answers, +0.0 pp [-3.6, +3.6]; fp8 changed 5.0%."


def test_a_limit_that_only_the_arm_breaks_blocks_it() -> None:
    policy = Policy(slos=(Slo(workload="chat", ttft_ms=3500.0),))
    (found,) = findings(slo_broken, compared(effect=0.8, pairs=24), policy)
    assert (found.asks_for, found.kind) == ("avoid", "blocks")
    assert findings(slo_broken, compared(effect=-0.1, pairs=24), policy) == []
    assert findings(slo_broken, compared(effect=0.8, pairs=24), Policy(slos=(Slo(workload="chat", ttft_ms=500.0),))) == []


def test_missing_evidence_is_priced() -> None:
    told = [each.message for each in findings(missing_evidence, bare())]
    assert told[0] == "chat has fewer than 3 block pairs on fp8."
    assert told[1].startswith("No paired answers on fp8: about 1,3")
    (open_question,) = findings(missing_evidence, compared(effect=-0.03, pairs=5))
    assert "is not settled against 3%" in open_question.message
    assert findings(missing_evidence, compared(effect=-0.2)) == []
