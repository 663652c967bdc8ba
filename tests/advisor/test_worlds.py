"""The verdicts that an expert would give: one table of worlds whose truth is known.

Some were wrong or misleading in real use; test_real_use.py says which.
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from typing import Final

import pytest

from advisor.decide import decide
from advisor.deployment import Deployment
from advisor.evidence import ClientHealth, Evidence
from advisor.policy import Policy, ServiceLimits
from advisor.steps import Again, Calibrate, CapacitySearch, MorePairs, Questions, Swap
from advisor.verdict import ArmVerdict, Decision
from tests.advisor.cases import BF16, FP8, H100, bare, compared
from tests.advisor.decided import (
    QUIET,
    WRONG,
    World,
    controlled,
    first_turns,
    garbage_above_100k,
    in_use,
    loaded,
    mixed,
    of_long_calls,
    of_two_kinds,
    on_machines,
    p95,
    published_losses,
    scaled,
    searched,
    skipping_windows,
    three_arms,
    two_copies,
    with_tail,
    wrong_above,
)

UPGRADE = "upgrade vLLM to 0.19.1"
CAP = "cap the context at 64k"
INVALID = "turn latency cannot be judged, because a validity check failed"
ONE_MACHINE = "Each arm had one machine"
BEYOND = "64% of your calls are longer, up to 122k, and need further testing."
APART = "two identical servers may differ by up to"


def steady(effect: float, **changes: object) -> Evidence:
    """Return 24 quiet pairs."""
    return compared(effect=effect, pairs=24, noise=QUIET, **changes)  # type: ignore[arg-type]


def tailed(effect: float, share: float, times: float, *metrics: str, pairs: int = 48) -> Evidence:
    evidence = compared(effect=effect, pairs=pairs, noise=QUIET)
    return with_tail(evidence, share, times, *metrics)


def late(factor: float) -> Evidence:
    """Return turns that are 12% shorter, with first tokens *factor* times as late."""
    evidence = compared(effect=-0.12, pairs=48, noise=QUIET)
    return scaled(evidence, factor / 0.88, "ttft_ms")


def scales(name: str | None) -> Evidence:
    """Return an arm that is faster and wrong, with such scales."""
    arms = (BF16, replace(FP8, scales=name))  # type: ignore[arg-type]  # a world names it
    return compared(effect=-0.12, noise=QUIET, **WRONG, arms=arms)


def old_kernel(items: int) -> Evidence:
    deployment = Deployment(version="0.10.2", gpu=H100, machines=("a",))
    return compared(effect=-0.12, noise=QUIET, **{**WRONG, "items": items}, deployment=deployment)


def level(limit: float) -> object:
    """Return what sets the limit of a first token to so many times the reference's p95."""
    return lambda evidence: Policy(
        slos=(ServiceLimits(ttft_ms=limit * p95(evidence, "bf16"), share=0.95),), counts="turns"
    )


def without_peak(evidence: Evidence) -> Evidence:
    return replace(evidence, deployment=replace(evidence.deployment, peak_agents=None))


WORLDS: Final[dict[str, World]] = {
    # --- how fast turns are
    "all turns are faster": World(evidence=lambda: steady(-0.1), verdict="use"),
    "no turn changes": World(evidence=lambda: steady(0.0), verdict="no difference"),
    "all turns are slower": World(evidence=lambda: steady(0.1), verdict="avoid"),
    "a gain at the margin itself asks for as many pairs again": World(
        evidence=lambda: steady(-0.032, seed=3),
        verdict="test further",
        equal={"pays.state": "unclear", "needs[0].pairs": 24},
        steps=(MorePairs(pairs=48),),
    ),
    "too few calls ask for a number of more": World(
        evidence=lambda: compared(effect=-0.03, pairs=4), verdict="test further"
    ),
    "long and thinking classes gain, a short one does not change": World(
        evidence=lambda: mixed({"reasoning": -0.12, "long chat": -0.09, "short chat": 0.005}),
        verdict="use",
        choice={"arm": "fp8"},
        classes={"reasoning": "use", "long chat": "use", "short chat": "no difference"},
    ),
    "prefill-heavy rag loses, decode-heavy agents gain": World(
        evidence=lambda: mixed({"rag": 0.25, "agents": -0.12}),
        verdict="avoid",
        classes={"rag": "avoid", "agents": "use"},
    ),
    "long turns gain what short ones lose": World(
        evidence=lambda: of_two_kinds(1.08, 0.82, pairs=48),
        verdict="test further",
        says=("prompts up to", "prompts above", "+8.", "-18.", "counts"),
    ),
    "long turns gain what short ones lose, and turns count": World(
        evidence=lambda: of_two_kinds(1.08, 0.82, pairs=48),
        policy=Policy(counts="turns"),
        verdict="no difference",
    ),
    "long turns gain what short ones lose, and time counts": World(
        evidence=lambda: of_two_kinds(1.08, 0.82, pairs=48),
        policy=Policy(counts="time"),
        verdict="use",
    ),
    "short turns gain what long ones pay for": World(
        evidence=lambda: of_two_kinds(0.86, 1.06), verdict="test further"
    ),
    "skipping window layers is faster than full FP8": World(
        evidence=skipping_windows,
        arm="fp8-skip-sw",
        verdict="use",
        choice={"arm": "fp8-skip-sw", "runner_up": "fp8"},
        findings=(("window_layers", "1.25x the tokens of bf16, that of fp8 2.00x"),),
    ),
    "the arm in use is the faster one": World(
        evidence=lambda: in_use(steady(-0.12), "fp8", "bf16"),
        arm="bf16",
        verdict="avoid",
        choice={"headline": "stay on fp8: avoid bf16"},
    ),
    # --- tails and service levels
    "turns that read alike, none of them slow": World(
        evidence=lambda: tailed(0.0, 0.0, 1.0), verdict="no difference"
    ),
    "faster turns that read alike, none of them slow": World(
        evidence=lambda: tailed(-0.1, 0.0, 1.0), verdict="use"
    ),
    "equal but for a tail of turns": World(
        evidence=lambda: tailed(0.0, 0.03, 1.5, "turn_ms"),
        verdict="test further",
        says=("Turn latency p99",),
    ),
    "equal but for a tail of first tokens": World(
        evidence=lambda: tailed(0.0, 0.03, 1.5, "ttft_ms"),
        verdict="test further",
        says=("TTFT p99",),
    ),
    "faster but for a tail of turns": World(
        evidence=lambda: tailed(-0.1, 0.03, 1.5, "turn_ms"),
        verdict="test further",
        says=("Turn latency p99",),
    ),
    "faster but for a tail of first tokens": World(
        evidence=lambda: tailed(-0.1, 0.03, 1.5, "ttft_ms"),
        verdict="test further",
        says=("TTFT p99",),
    ),
    "a tail of first tokens within the user's own limit of them": World(
        evidence=lambda: tailed(-0.1, 0.03, 1.5, "ttft_ms"),
        policy=Policy(slos=(ServiceLimits(ttft_ms=60_000.0),)),
        verdict="use",
    ),
    "a tail of first tokens within a limit of turns": World(
        evidence=lambda: tailed(-0.1, 0.03, 1.5, "ttft_ms"),
        policy=Policy(slos=(ServiceLimits(turn_ms=60_000.0),)),
        verdict="test further",
    ),
    "a limit that only the arm breaks, surely": World(
        evidence=lambda: late(1.5),
        policy=level(1.2),  # type: ignore[arg-type]
        verdict="avoid",
        equal={"pays.state": "no"},
        says=("the limit is",),
        hides=("whether it meets the limit of",),
    ),
    "a limit that only the arm breaks, perhaps": World(
        evidence=lambda: late(1.5),
        policy=level(1.48),  # type: ignore[arg-type]
        verdict="test further",
        equal={"pays.state": "yes"},
        says=("whether it meets the limit of",),
    ),
    "a limit that nobody breaks": World(
        evidence=lambda: late(1.5),
        policy=level(2.0),  # type: ignore[arg-type]
        verdict="use",
        equal={"pays.state": "yes"},
        hides=("the limit is", "whether it meets the limit of"),
    ),
    "a limit in milliseconds that only the arm breaks": World(
        evidence=lambda: scaled(compared(effect=-0.1, pairs=24), 3, "ttft_ms"),
        policy=Policy(slos=(ServiceLimits(ttft_ms=3500.0),)),
        verdict="avoid",
        says=("the limit is 3.5 s",),
    ),
    "first tokens come much later, and no level is stated": World(
        evidence=lambda: late(1.57), verdict="test further", says=("TTFT p",)
    ),
    # --- answers
    "faster, but answers were not asked": World(
        evidence=lambda: compared(effect=-0.15, items=0),
        verdict="test further",
        equal={"pays.state": "yes", "safe.state": "untested"},
    ),
    "a kernel loses the needle, whatever it gains": World(
        evidence=lambda: compared(effect=-0.2, items=40, change=-0.78, discordance=0.8),
        verdict="avoid",
        equal={"safe.state": "no"},
        choice={"arm": "bf16"},
    ),
    **{
        f"faster and wrong, with scales {name}": World(
            evidence=lambda name=name: scales(name),  # type: ignore[misc]
            verdict="calibrate" if name in ("default", None) else "avoid",
            equal={"safe.state": "no", "pays.state": "yes"},
            steps=(Calibrate(),) if name in ("default", None) else (),
        )
        for name in ("default", None, "calibrated", "dynamic")
    },
    "wrong and no faster": World(evidence=lambda: steady(0.0, **WRONG), verdict="avoid"),
    "a known kernel bug before answers were asked": World(
        evidence=lambda: old_kernel(0),
        verdict="avoid",
        equal={"safe.state": "no"},
        headline=(UPGRADE,),
        says=("pgrade vLLM to 0.19.1",),
    ),
    "a known kernel bug after answers were asked": World(
        evidence=lambda: old_kernel(300),
        verdict="avoid",
        equal={"safe.state": "no"},
        headline=(UPGRADE,),
        says=("pgrade vLLM to 0.19.1",),
    ),
    "wrong above 64k alone": World(
        evidence=lambda: wrong_above(70_000),
        verdict="avoid",
        headline=(CAP,),
        says=("Cap the context at 64k (--max-model-len 65536), or route longer calls to bf16",),
    ),
    "wrong at every length": World(
        evidence=lambda: compared(
            effect=-0.15, noise=QUIET, items=200, change=-0.5, discordance=0.55
        ),
        verdict="avoid",
        hides=("context at",),
    ),
    "wrong above 64k, where most calls are": World(
        evidence=lambda: of_long_calls(wrong_above(70_000)),
        verdict="avoid",
        equal={"holds_to": None},
        headline=(CAP,),
    ),
    "most calls are above 64k, where nothing was asked": World(
        evidence=lambda: of_long_calls(wrong_above(70_000, asked_to=32 * 1024)),
        verdict="use",
        equal={"holds_to": 32 * 1024, "needs[0].step.lengths[-1]": 118 * 1024},
        says=("for contexts up to 32k: 77% of your calls are longer",),
    ),
    "garbage above 100k, asked for": World(
        evidence=lambda: garbage_above_100k(asked_to=131_072),
        verdict="avoid",
        says=("fp8 is broken above 96k: 9 of 150 right at 128k where bf16 has 141 of 150.",),
    ),
    "garbage above 100k, not asked for": World(  # one call in twenty, over a tenth of the tokens
        evidence=lambda: garbage_above_100k(asked_to=98_304),
        verdict="use",
        equal={"holds_to": 98_304.0, "untested_share": 0.05},
        choice={"headline": "use fp8 for contexts up to 96k; test it further beyond"},
        findings=(("untested_lengths", "5.0% of the calls of the mix are longer than 96k"),),
    ),
    "most calls beyond what was asked": World(
        evidence=lambda: garbage_above_100k(asked_to=32_768),
        verdict="use",
        equal={"holds_to": 32_768.0},
        choice={"holds_to": 32_768.0},
        steps=(Questions(lengths=(32_768, 65_536, 125_952), items=600),),
        says=(f"This holds for contexts up to 32k: {BEYOND}",),
    ),
    "six of six buckets fall, and nothing was timed": World(
        evidence=published_losses,
        verdict="calibrate",
        choice={"headline": "stay on bf16; calibrate fp8, then test it again"},
        says=("6 of 6 buckets fell and none rose (sign test p 0.016",),
    ),
    "six of six buckets fall by less than the margin": World(
        evidence=published_losses, policy=Policy(accuracy_margin=0.06), verdict="test further"
    ),
    # --- capacity
    "slower turns, more agents": World(
        evidence=lambda: searched(steady(0.12), bf16=16, fp8=40), verdict="avoid"
    ),
    "faster turns, fewer agents": World(
        evidence=lambda: searched(steady(-0.12), bf16=40, fp8=16), verdict="avoid"
    ),
    "a class that was not searched agrees with the mix": World(
        evidence=lambda: searched(steady(0.0), bf16=16, fp8=40),
        verdict="use",
        equal={"pays.state": "yes"},
        classes={"chat": "use"},
    ),
    "a larger pool that the load leaves empty": World(
        evidence=lambda: loaded(steady(0.0), working_set=100_000.0), verdict="no difference"
    ),
    "a larger pool that the load fills": World(
        evidence=lambda: loaded(steady(0.0), working_set=400_000.0),
        verdict="test further",
        steps=(CapacitySearch(limits=None, trial_s=60.0),),
    ),
    "a larger pool that the load fills, searched": World(
        evidence=lambda: searched(loaded(steady(0.0), working_set=400_000.0), bf16=9, fp8=20),
        verdict="use",
        equal={"pays.state": "yes"},
        says=("agents per GPU for",),
    ),
    "agents are known, the peak is not": World(
        evidence=lambda: without_peak(searched(compared(effect=-0.1), bf16=16, fp8=40)),
        verdict="use",
        caveats=("load.peak_agents",),
    ),
    "agents and the peak are known": World(
        evidence=lambda: searched(compared(effect=-0.1), bf16=16, fp8=40),
        verdict="use",
        no_caveats=("load.peak_agents",),
    ),
    # --- machines, starts and validity
    "two arms on one machine": World(
        evidence=lambda: on_machines("a"),
        verdict="use",
        choice={"canary": False},
        no_caveats=(ONE_MACHINE,),
    ),
    "two arms on two machines": World(
        evidence=lambda: on_machines("a", "b"),
        verdict="use",
        choice={"canary": True},
        caveats=(ONE_MACHINE,),
    ),
    "two arms that exchanged their machines": World(
        evidence=lambda: on_machines("a", "b", swapped=True),
        verdict="use",
        choice={"canary": False},
        no_caveats=(ONE_MACHINE,),
    ),
    "a slower machine is not blamed on its arm": World(
        evidence=lambda: two_copies(0.03, seed=4, machines=("a", "b")),
        arm="bf16-b",
        verdict="test further",
        steps=(Swap(pairs=24),),
        says=("each arm stayed on one machine: let them change machines half way (--swap)",),
    ),
    "two equal servers on one machine": World(
        evidence=lambda: two_copies(0.0, seed=5, machines=("a",)),
        arm="bf16-b",
        verdict="no difference",
        equal={"safe.state": "yes"},
    ),
    "copies that differ by as much as the arms": World(
        evidence=lambda: controlled(steady(-0.1, restarts=1), 0.1, pairs=12, seed=7),
        verdict="test further",
        equal={"pays.state": "unclear"},
    ),
    **{
        f"copies that differ by {effect:.0%}": World(
            evidence=lambda effect=effect: controlled(  # type: ignore[misc]
                compared(effect=-0.1, restarts=1), effect, pairs=6, seed=8
            ),
            verdict="test further",
            findings=(("noise_floor", APART),),
        )
        for effect in (0.15, 3.0)
    },
    "a client that sends late": World(
        evidence=lambda: compared(effect=-0.2, health=(ClientHealth(send_lag_p99_ms=40.0),)),
        verdict="test further",
        equal={
            "pays.reason": f"{INVALID} (client: the load generator sent requests 40.0 ms late "
            "(p99): reduce the load or use an idle machine)",
            "needs[0].what": "a rerun in which the check 'client' passes",
            "len(needs)": 1,
        },
        steps=(Again(),),
        caveats=("sent requests 40.0 ms late",),
    ),
    "an arm that is not what it says": World(
        evidence=lambda: compared(
            effect=-0.2, arms=(BF16, replace(FP8, observed_dtype="bfloat16"))
        ),
        verdict="test further",
        equal={
            "pays.reason": f"{INVALID} (identity: KV dtype bfloat16 where dtype fp8 was asked for)"
        },
    ),
    "no calls at all": World(
        evidence=bare, verdict="test further", no_caveats=("There is one arm only",)
    ),
    "one arm alone": World(
        evidence=lambda: bare(arms=(BF16,)),
        verdict=None,
        choice={"headline": "stay on bf16: nothing was compared with it"},
        caveats=("There is one arm only: nothing is compared.",),
    ),
}
"""Worlds by what is true of them."""


def part(whole: object, path: str) -> object:
    """Return what lies at a path such as `pays.state`, `needs[0].pairs` or `len(needs)`."""
    if path.startswith("len("):
        return len(attrgetter(path[4:-1])(whole))
    for step in path.split("."):
        name, _, index = step.partition("[")
        found = getattr(whole, name)
        whole = found[int(index.rstrip("]"))] if index else found
    return whole


def missing(texts: tuple[str, ...], where: tuple[str, ...]) -> list[str]:
    """Return the texts that are in no place."""
    return [text for text in texts if not any(text in place for place in where)]


def verdict_on(decision: Decision, arm: str) -> ArmVerdict | None:
    return next((each for each in decision.server if each.arm == arm), None)


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_is_decided_as_an_expert_would(name: str) -> None:
    world = WORLDS[name]
    evidence = world.evidence()
    policy = world.policy if isinstance(world.policy, Policy) else world.policy(evidence)
    decision = decide(evidence, policy)
    found = verdict_on(decision, world.arm)
    assert (None if found is None else found.verdict) == world.verdict
    choice = decision.choice
    assert {path: part(choice, path) for path in world.choice} == world.choice
    assert missing(world.headline, (choice.headline,)) == []
    assert missing(world.caveats, decision.caveats) == []
    assert missing(world.no_caveats, decision.caveats) == list(world.no_caveats)
    for rule, text in world.findings:
        assert missing((text,), tuple(e.message for e in decision.findings if e.rule == rule)) == []
    if found is not None:
        assert {path: part(found, path) for path in world.equal} == world.equal
        assert missing(world.says, (found.reason,)) == []
        assert [text for text in world.hides if text in found.reason.lower()] == []
        steps = [need.step for need in found.needs]
        assert [step for step in world.steps if step not in steps] == []
        assert (Calibrate() in steps) == (world.verdict == "calibrate")
        own = [each for each in decision.classes if each.arm == world.arm]
        words = {each.workload: each.verdict for each in own if each.workload in world.classes}
        assert words == world.classes


def test_an_arm_is_chosen_for_the_flips_of_its_own_verdict() -> None:
    decision = decide(three_arms(-0.08, 0.93, "skip"))
    chosen, other = verdict_on(decision, "skip"), verdict_on(decision, "fp8")
    assert (decision.choice.arm, decision.choice.runner_up) == ("skip", "fp8")
    assert chosen is not None
    assert other is not None
    assert chosen.flips[0] in decision.flips
    assert other.flips[0] not in decision.flips


def test_a_tail_of_too_few_turns_is_not_known_and_vetoes_nothing() -> None:
    evidence = with_tail(compared(effect=-0.1, pairs=6, noise=QUIET, seed=3), 0.0, 1.0)
    tails = [each for each in decide(first_turns(evidence)).findings if each.rule == "tail"]
    assert any("is not known: 3" in each.message for each in tails)
    assert [each.asks_for for each in tails if each.asks_for is not None] == []
