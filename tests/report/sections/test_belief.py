"""What speaks for and against the figures."""

from dataclasses import replace
from typing import Literal

import pytest

from advisor.deployment import Deployment
from advisor.evidence import Arm, ClientHealth, Evidence
from advisor.legs.gpus import GPUS
from advisor.rulebook import all_rules
from advisor.verdict import TIMES, Gate, Skipped
from agentload.report.parts import Check, Confidence, Made, RunFacts, Served
from tests.report import sample
from tests.report.telling import made


def checks(evidence: Evidence, facts: RunFacts | None = None) -> set[Check]:
    return set(made(evidence=evidence, facts=facts).belief)


def test_what_speaks_against_the_figures_is_said() -> None:
    evidence = sample.evidence()
    arms = (
        replace(evidence.arms[0], kernel="FLASH_ATTN(FA3)"),
        replace(evidence.arms[1], kernel="FLASHINFER", observed_dtype="bfloat16"),
        evidence.arms[2],
    )
    poor = replace(
        evidence,
        arms=arms,
        aa=(),
        deployment=replace(evidence.deployment, swapped=False),
        health=(ClientHealth(void_blocks=6, blocks=24),),
        server=tuple(
            (arm, replace(figures, pool_filled_share=0.0)) for arm, figures in evidence.server
        ),
    )
    servers = tuple(Served(arm=arm, steady=arm != "fp8") for arm in sample.ARMS)
    facts = replace(sample.facts(), made=replace(sample.facts().made, servers=servers))
    decision = sample.decision()
    uncontrolled = replace(
        decision, changes=tuple(replace(each, floor=None) for each in decision.changes)
    )
    assert not any(
        "never filled" in check.text for check in made(uncontrolled, poor, facts).belief
    )  # a search filled it
    assert set(made(replace(uncontrolled, capacity=()), poor, facts).belief) >= {
        Check(
            state="bad",
            text="each arm stayed on its own machine, so a difference may be the machine's",
            caps="open",
        ),
        Check(
            state="bad",
            text="the KV dtype is not what was asked for: FP8 (bfloat16 for fp8_e4m3)",
            caps="open",
        ),
        Check(
            state="bad",
            text="the attention kernel differs: BF16 FLASH_ATTN(FA3), FP8 FLASHINFER, FP8 "
            "skip-SW FLASH_ATTN(FA3)",
            caps="likely",
        ),
        Check(state="bad", text="the server changed during the run: FP8", caps="open"),
        Check(state="bad", text="6 of 24 blocks invalid", caps="likely"),
        Check(
            state="unknown",
            text="there was no A/A control, so the noise floor is unknown",
            caps="likely",
        ),
        Check(
            state="unknown",
            text="the KV pool never filled on BF16, FP8, FP8 skip-SW, so capacity cannot be judged",
        ),
    }


def test_a_control_that_leaves_more_than_the_margin_possible_shows_nothing() -> None:
    decision = sample.decision()
    wild = replace(decision, changes=tuple(replace(each, floor=0.19) for each in decision.changes))
    told = (
        "two identical servers may differ by up to 19.0% in turn latency (A/A control across "
        "machines)"
    )
    assert Check(state="unknown", text=told, caps="open") in made(wild).belief
    assert (made(wild).sure.effect, made(wild).sure.reasons[0]) == ("open", told)


def test_turns_that_were_played_again_and_again_are_told_as_what_they_are() -> None:
    evidence = sample.evidence()
    assert not any("distinct" in each.text for each in made().belief)
    few = tuple(
        replace(
            each,
            calls=None
            if each.calls is None
            else replace(each.calls, session=each.calls.session % 4),
        )
        for each in evidence.observations
    )
    (told,) = (
        each
        for each in made(evidence=replace(evidence, observations=few)).belief
        if "distinct" in each.text
    )
    assert told.state == "unknown"
    assert told.text.endswith("distinct turns, each played 8 times (a longer trace helps)")


def test_what_was_not_observed_is_never_told_as_fine() -> None:
    evidence = replace(
        sample.evidence(),
        arms=tuple(Arm(name=name) for name in sample.ARMS),
        deployment=Deployment(gpu=sample.evidence().deployment.gpu),
        health=(),
        server=(),
    )
    facts = RunFacts(made=Made(run="r", tool_version="0.1.0"))
    fine = {check.text for check in checks(evidence, facts) if check.state == "ok"}
    assert fine == {
        (
            "two identical servers may differ by up to 1.8% in turn latency (A/A control "
            "across machines)"
        ),
        "8 block pairs and 288 calls per arm",
        "2 of 3 validity checks passed, none failed",
    }


def test_a_failed_gate_is_told_with_what_it_saw() -> None:
    gates = tuple(
        Gate(
            name="steady",
            status="fail",
            arm="fp8",
            workload=name,
            message="time per output token rose by 9%",
        )
        for name in ("code", "rag")
    )
    decision = replace(
        sample.decision(),
        gates=gates,
        caveats=("steady: time per output token rose by 9%.", "Each server was started once."),
    )
    told = made(decision)
    assert (
        Check(
            state="bad",
            text="failed validity check on FP8, code: time per output token rose by 9% (and 1 "
            "more time)",
            caps="likely",
        )
        in told.belief
    )
    spoilt = made(replace(decision, gates=(gates[0], replace(gates[1], spoils=TIMES))))
    assert [each.caps for each in spoilt.belief if "failed validity" in each.text] == ["open"]
    assert dict(told.asides)["Caveats"] == "Each server was started once"


def test_servers_that_tell_nothing_of_themselves_are_not_called_the_same() -> None:
    facts, decision, evidence = sample.facts(), sample.decision(), sample.evidence()
    servers = (Served(arm="bf16", steady=True), Served(arm="fp8", is_opaque=True))
    opaque = made(
        decision, evidence, replace(facts, made=replace(facts.made, servers=servers))
    ).belief
    assert (
        Check(
            state="bad",
            text="identity not verified: FP8 reported neither version, KV dtype nor kernel",
            caps="likely",
        )
        in opaque
    )
    assert not any("same identity" in each.text for each in opaque)


def test_an_effect_is_as_certain_as_its_distance_from_the_margin_and_the_open_checks_allow() -> (
    None
):
    decision = sample.decision()
    near = made().sure
    assert (near.effect, near.reasons) == ("likely", ("each server was started once",))
    assert near.because == (
        "turn latency −4.1% at the least; a change counts from 3%; accuracy holds by 0.8 pp"
    )
    gain = replace(sample.estimate(-0.5, 0.1), n=4)
    equal = replace(sample.estimate(0.0, 0.01, unit="share"), n=744)
    far = tuple(
        replace(
            each, pays=replace(each.pays, estimate=gain), safe=replace(each.safe, estimate=equal)
        )
        for each in decision.server
    )
    assert made(replace(decision, server=far)).sure.effect == "certain"
    few = tuple(replace(each, pairs=4) for each in decision.changes)
    failed = (Gate(name="client", status="fail", message="late", spoils=TIMES),)
    poor = made(replace(decision, changes=few, gates=failed)).sure
    assert (poor.effect, poor.reasons) == (
        "open",
        ("failed validity check on all arms: late", "only 4 block pairs and 288 calls per arm"),
    )
    undecided = tuple(replace(each, verdict="test further") for each in decision.server)
    assert made(replace(decision, server=undecided)).sure.effect == "open"


def test_an_effect_is_no_more_certain_than_its_accuracy_and_says_how_near_the_margin_is() -> None:
    decision = sample.decision()
    gain = replace(sample.estimate(-0.5, 0.1), n=4)

    def sure(low: float) -> Confidence:
        lost = replace(sample.estimate(-0.001, 0.001, unit="share"), low=low)
        server = tuple(
            replace(
                each, pays=replace(each.pays, estimate=gain), safe=replace(each.safe, estimate=lost)
            )
            for each in decision.server
        )
        return made(replace(decision, server=server)).sure

    near, far, least = sure(-0.025), sure(-0.015), sure(-0.0299)
    assert (near.effect, far.effect) == ("likely", "certain")
    assert near.because.endswith("; accuracy holds by 0.5 pp")
    assert far.because.endswith("; accuracy holds by 1.5 pp")
    assert least.because.endswith("; accuracy holds by less than 0.1 pp")


@pytest.mark.parametrize(
    ("low", "high", "because"),
    [
        (-0.09, 0.09, "accuracy −9.0 pp at worst; 3 pp are accepted"),
        (-0.4, 0.4, "accuracy: too few questions"),
        (None, None, "accuracy was not measured"),
    ],
)
def test_an_effect_that_is_open_by_its_accuracy_alone_names_accuracy(
    low: float | None, high: float | None, because: str
) -> None:
    decision = sample.decision()
    measured = replace(sample.estimate(0.0, 0.1, unit="share"), low=low, high=high)
    found = None if low is None else measured
    server = tuple(
        replace(
            each,
            verdict="test further",
            pays=replace(each.pays, state="yes"),
            safe=replace(each.safe, state="unclear", estimate=found),
        )
        for each in decision.server
    )
    sure = made(replace(decision, server=server)).sure
    assert (sure.effect, sure.because) == ("open", because)


def test_an_effect_is_named_by_what_decided() -> None:
    decision = sample.decision()
    server = tuple(
        replace(each, pays=replace(each.pays, estimate=replace(each.pays.estimate, method=GPUS)))
        for each in decision.server
        if each.pays.estimate is not None
    )
    because = made(replace(decision, server=server)).sure.because
    assert because.startswith("GPUs at the peak −4.1% at the least; ")
    sixth = tuple(replace(each, pays=replace(each.pays, margin=1 / 6)) for each in server)
    assert "a change counts from 16.7%" in made(replace(decision, server=sixth)).sure.because


def test_whether_an_effect_carries_over_is_said_apart_from_how_certain_it_is() -> None:
    decision, evidence = sample.decision(), sample.evidence()
    measured = made().sure
    assert (measured.basis, measured.carries) == (
        "measured",
        "measured on your servers; 11 of 15 figures of the load are like production's",
    )
    simulated = made(replace(decision, kind="simulated")).sure
    assert (simulated.basis, simulated.carries) == (
        "simulated",
        "not measured (simulated from a profile)",
    )
    facts = replace(sample.facts(), unmeasured=("fp8-skip-sw", "another"))
    prior = made(replace(decision, kind="simulated"), facts=facts).sure
    assert prior.carries == (
        "not measured (simulated from a prior: nobody has measured FP8 skip-SW)"
    )
    cpu = replace(evidence.deployment, gpu=replace(evidence.deployment.gpu, name="CPU"))
    assert made(evidence=replace(evidence, deployment=cpu)).sure.basis == "another machine"


def test_every_input_that_a_shipped_rule_can_miss_has_a_name_that_people_use() -> None:
    needs = sorted(
        {need for rule in all_rules() if rule.problem is None for need in rule.module.NEEDS}
    )
    skipped = tuple(Skipped(rule=need, missing=(need,)) for need in needs)
    told = made(replace(sample.decision(), skipped=skipped)).skipped
    raw = [
        need
        for need, row in zip(needs, told.rows, strict=True)
        if row[1].text == need.rpartition(".")[2].replace("_", " ")
    ]
    assert raw == []


def test_who_read_the_sockets_is_said_where_it_is_known() -> None:
    def lag(*paths: Literal["thread", "interpreter"] | None) -> str:
        health = tuple(ClientHealth(send_lag_p99_ms=1.0, read_path=path) for path in paths)
        texts = {check.text for check in checks(replace(sample.evidence(), health=health))}
        (found,) = (text for text in texts if text.startswith("requests left"))
        return found

    assert lag(None) == "requests left at most 1 ms late (p99)"
    assert lag("thread").endswith("(p99, read by a thread of its own)")
    assert lag("thread", "interpreter").endswith("read by a thread of its own and the interpreter)")
