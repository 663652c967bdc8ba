"""What a report says first: its headline and the four lists."""

from dataclasses import replace

import pytest

from advisor.estimate import Estimate
from advisor.evidence import Arm
from advisor.steps import MorePairs
from advisor.verdict import Finding, Need, Word
from agentload.report.parts import Made, RunFacts, Served
from tests.report import sample
from tests.report.telling import CHOICE, chosen, made


def test_the_headline_is_the_advisors_with_the_arms_named_as_people_do() -> None:
    told = made(
        chosen(
            CHOICE,
            arm="bf16",
            verdict="test further",
            headline="stay on bf16; test fp8-skip-sw further",
            runner_up="fp8-skip-sw",
        )
    )
    assert (told.headline, told.tone) == ("stay on BF16; test FP8 skip-SW further", "muted")
    assert made().headline == "canary FP8 skip-SW, then roll out"


def test_the_headings_of_the_four_lists_are_the_lectures() -> None:
    assert [listing.heading for listing in made().lists] == [
        "Use FP8 KV-cache for",
        "Avoid FP8 KV-cache for",
        "Need calibration for",
        "Need further testing for",
    ]


def test_every_class_is_in_exactly_the_lists_of_its_verdicts() -> None:
    told = made()
    assert {listing.word: listing.items for listing in told.lists} == {
        "use": ("code, long_chat (FP8 skip-SW)",),
        "avoid": ("rag (FP8)",),
        "calibrate": ("code, long_chat (FP8)",),
        "test further": (
            "multimodal (FP8 skip-SW: +260 calls, 7 min)",
            "multimodal (FP8: +260 calls, 7 min)",
            "contexts above 128k (3% of your calls, not tested: stay on BF16 or cap)",
        ),
    }
    assert told.no_difference == ("rag (FP8 skip-SW)",)


def test_a_verdict_that_all_classes_share_is_told_once() -> None:
    decision = sample.decision()
    same = tuple(
        replace(each, verdict="calibrate") if each.arm == "fp8" else each
        for each in decision.classes
    )
    assert made(replace(decision, classes=same)).lists[2].items == ("FP8, the whole server",)


def test_arms_that_are_not_about_fp8_give_the_headings_their_own_name() -> None:
    evidence = replace(
        sample.evidence(),
        reference="old",
        arms=(Arm(name="old"), Arm(name="new")),
        server=(),
        sweeps=(),
        capacity=(),
    )
    decision = replace(
        chosen(CHOICE, arm="new", runner_up=None),
        reference="old",
        server=(replace(sample.verdict("fp8-skip-sw", None, "use"), arm="new"),),
        classes=(),
        itl=(),
        ttft=(),
        break_even=(),
        changes=(),
        accuracy=(),
    )
    told = made(decision, evidence, RunFacts(made=Made(run="r", tool_version="0.1.0")))
    assert told.title == "new against old on"
    assert told.lists[0].heading == "Use new for"


def test_a_list_of_a_run_on_fp8_and_others_is_headed_by_the_arm_that_is_in_it() -> None:
    evidence = sample.evidence()
    arms = tuple(
        replace(each, name="wide", expected_dtype="bfloat16", observed_dtype="bfloat16")
        if each.name == "fp8-skip-sw"
        else each
        for each in evidence.arms
    )
    decision = replace(
        chosen(CHOICE, arm="wide", runner_up=None),
        server=(replace(sample.verdict("fp8-skip-sw", None, "use"), arm="wide"),),
        classes=(),
        itl=(),
        ttft=(),
        break_even=(),
        changes=(),
        accuracy=(),
        capacity=(),
    )
    bare = replace(evidence, arms=arms, server=(), sweeps=(), capacity=(), workloads=())
    told = made(decision, bare, RunFacts(made=Made(run="r", tool_version="0.1.0")))
    assert told.lists[0].heading == "Use wide for"
    assert told.lists[0].items == ("the whole server (wide)",)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("measured", "Measured on real servers"),
        ("emulated", "Emulated:"),
        ("simulated", "Simulated:"),
    ],
)
def test_the_kind_of_the_evidence_is_said_first(kind: str, words: str) -> None:
    told = made(replace(sample.decision(), kind=kind))  # type: ignore[arg-type]  # one of the three
    assert told.banner.startswith(words)
    assert ("agentload endpoints init" in repr(told.do_now[0])) == (kind != "measured")
    calibrates = ["agentload calibrate" in repr(each) for each in told.do_now]
    assert kind == "measured" or calibrates == [False, True, False]
    assert kind == "measured" or "agentload decide" in repr(told.do_now[2])


@pytest.mark.parametrize(
    ("gpu", "model", "words"),
    [
        (
            "CPU",
            "random-gpt_oss",
            (
                "Measured on a CPU with random weights. This shows the method on real servers; "
                "no latency or accuracy here"
            ),
        ),
        (
            "CPU",
            "acme/hybrid-30b",
            "Measured on a CPU. This shows the method on real servers; no latency here",
        ),
        (
            "H100-SXM",
            "random-gpt_oss",
            "Measured with random weights. This shows the method on real servers; no accuracy here",
        ),
    ],
)
def test_figures_that_carry_over_to_no_gpu_say_so_first(gpu: str, model: str, words: str) -> None:
    evidence = sample.evidence()
    deployment = replace(evidence.deployment, gpu=replace(evidence.deployment.gpu, name=gpu))
    assert made(
        evidence=replace(evidence, deployment=deployment, model=replace(evidence.model, name=model))
    ).banner.startswith(words)


def test_verdicts_that_read_the_same_are_told_once() -> None:
    decision = sample.decision()
    alike = tuple(
        replace(
            each,
            verdict="test further",
            reason="nobody looked",
            inequality=None,
            flips=(),
            needs=(),
        )
        for each in (*decision.server, *decision.classes)
        if each.workload != "rag" or each.arm == "fp8"
    )
    told = made(replace(decision, server=alike[:2], classes=alike[2:]))
    places = "the whole server, code, long_chat"
    title = f"FP8 skip-SW on {places}, multimodal; FP8 on {places}, rag, multimodal: test further"
    assert [(reason.title, reason.message) for reason in told.verdicts] == [
        (title, "nobody looked")
    ]


@pytest.mark.parametrize(
    ("verdict", "told"),
    [
        ("avoid", "slower"),
        ("use", "faster"),
        ("test further", "undecided"),
        ("no difference", "no change beyond 3%"),
    ],
)
def test_of_two_runs_the_headline_says_how_the_later_one_differs_and_what_else_may_explain_it(
    verdict: str, told: str
) -> None:
    facts = replace(sample.facts(), made=replace(sample.facts().made, compared_with="r0"))
    found = made(chosen(CHOICE, verdict=verdict), facts=facts)
    assert (found.headline, found.tone) == (
        f"{told}: turn latency −6.0% [−7.9, −4.1]",
        "bad" if verdict == "avoid" else "plain",
    )
    assert [each.question for each in found.answers] == ["Faster or cheaper?"]
    assert (
        found.sure.reasons[0]
        == "there is one run each, so a restart or a noisy neighbour could explain a difference"
    )


def test_agents_without_a_peak_ask_for_it_by_name() -> None:
    decision, evidence = sample.decision(), sample.evidence()
    unknown = replace(
        decision,
        capacity=tuple(
            replace(each, replicas_at_peak=None, gpus_at_peak=None) for each in decision.capacity
        ),
    )
    no_peak = replace(evidence, deployment=replace(evidence.deployment, peak_agents=None))
    saved = made(unknown, no_peak).answers[-1]
    assert saved.word == "not known"
    assert saved.because == ("set load.peak_agents in the policy, your agents at peak")


@pytest.mark.parametrize(
    ("today", "price", "verdict", "told"),
    [
        ((5, 5, 5), 2.5, "use", "; 5,475 USD a month less at 2.5 USD a GPU-hour"),
        ((4, 5, 6), 2.5, "use", "; 3,650 to 7,300 USD a month less at 2.5 USD a GPU-hour"),
        ((4, 5, None), 2.5, "use", "; at least 3,650 USD a month less at 2.5 USD a GPU-hour"),
        ((1, 1, 1), 2.0, "avoid", "; 1,460 USD a month more at 2 USD a GPU-hour"),
        ((2, 5, 6), 2.5, "use", ""),
        ((4, 5, 6), 2.5, "test further", ""),
        ((5, 5, 5), None, "use", ""),
    ],
)
def test_gpus_are_dollars_a_month_at_both_ends_where_a_price_is_known_and_they_are_surely_saved(
    today: tuple[float, float, float | None], price: float | None, verdict: Word, told: str
) -> None:
    decision, evidence = sample.decision(), sample.evidence()
    low, value, high = today
    gpus = {"bf16": Estimate(value=value, low=low, high=high, n=9, unit="GPUs", method="")}
    capacity = tuple(
        replace(each, gpus_at_peak=gpus.get(each.arm, each.gpus_at_peak))
        for each in decision.capacity
    )
    server = tuple(replace(each, verdict=verdict) for each in decision.server)
    gpu = replace(evidence.deployment.gpu, usd_per_hour=price)
    priced = replace(evidence, deployment=replace(evidence.deployment, gpu=gpu, gpus_per_replica=1))
    because = made(replace(decision, capacity=capacity, server=server), priced).answers[-1].because
    assert because.endswith(told) if told else "USD" not in because


def test_what_would_mend_an_arm_is_to_be_done_now_with_the_command_that_tests_it_again() -> None:
    decision = sample.decision()
    mended = replace(decision.server[0], verdict="avoid", remedy="upgrade vLLM to 0.19.1")
    steps = made(replace(decision, server=(mended, *decision.server[1:]))).do_now
    (found,) = (
        each for each in steps if each.text == "Upgrade vLLM to 0.19.1, then test FP8 again."
    )
    assert (found.command or "").startswith(
        "agentload replay traces/mix.jsonl --endpoints arms.yaml"
    )


def test_each_server_is_named_on_the_first_screen_by_what_sets_it_apart_and_whether_it_changed() -> (
    None
):
    told = made().identity
    assert told.startswith(
        "BF16: vLLM 0.33.0, acme/hybrid-30b, KV dtype bfloat16, kernel FLASH_ATTN(FA3); "
        "FP8: the same with KV dtype fp8_e4m3; "
    )
    assert told.endswith(
        ". None changed during the run. The arms changed machines half way, as planned."
    )
    servers = (
        Served(arm="bf16", steady=True),
        Served(arm="fp8", steady=False),
        Served(arm="fp8-skip-sw", is_opaque=True),
    )
    facts = replace(sample.facts(), made=replace(sample.facts().made, servers=servers))
    assert (
        "FP8 changed during the run. Whether FP8 skip-SW changed during the run was not verified."
        in made(facts=facts).identity
    )
    unread = replace(
        sample.evidence(),
        arms=tuple(replace(arm, observed_dtype=None) for arm in sample.evidence().arms),
    )
    assert (
        "FP8: the same with KV dtype fp8_e4m3 (not confirmed by the server)"
        in made(evidence=unread).identity
    )
    assert made(replace(sample.decision(), kind="simulated")).identity.endswith(
        ". Simulated, so none could change."
    )


def test_the_workloads_are_named_first_and_each_has_its_verdict_where_there_are_several() -> None:
    assert made().about[0] == "workloads code, long_chat, rag and multimodal"
    assert made().by_workload == (
        "code, long_chat: FP8 calibrate, FP8 skip-SW use · rag: FP8 avoid, FP8 skip-SW no "
        "difference · multimodal: test further"
    )
    evidence = sample.evidence()
    one = replace(evidence, workloads=evidence.workloads[:1])
    assert (made(evidence=one).about[0], made(evidence=one).by_workload) == (
        f"workload {evidence.workloads[0].name}",
        "",
    )


@pytest.mark.parametrize(
    ("machines", "said"),
    [
        (("127.0.0.1:8000", "127.0.0.1:8001"), False),
        (("h1:8000", "h2:8000"), True),
        (("left", "right"), True),
    ],
)
def test_two_servers_of_one_host_are_no_two_machines(
    machines: tuple[str, ...], *, said: bool
) -> None:
    evidence = sample.evidence()
    told = made(
        evidence=replace(evidence, deployment=replace(evidence.deployment, machines=machines))
    )
    assert any("2 machines" in each for each in told.about) == said


def test_the_driver_under_a_server_is_named_with_what_else_it_is() -> None:
    servers = (
        Served(arm="bf16", under="driver 575.51, CUDA 12.9"),
        Served(arm="fp8", under="driver 580.119, CUDA 12.9"),
    )
    facts = replace(sample.facts(), made=replace(sample.facts().made, servers=servers))
    told = made(facts=facts).identity
    assert "kernel FLASH_ATTN(FA3), driver 575.51, CUDA 12.9; FP8: the same with" in told
    assert "KV dtype fp8_e4m3, driver 580.119, CUDA 12.9; " in told


def test_the_reason_is_said_in_words() -> None:
    decision = sample.decision()
    reason = {
        "fp8-skip-sw": "Turn latency -82.0% [-82.9%, -81.0%]; accuracy -0.6 pp [-2.2, +1.0] "
        "at 8k to 128k, margin 3 pp."
    }
    gain = Estimate(value=-0.82, low=-0.829, high=-0.81, n=8, unit="relative", method="")
    fast = tuple(
        replace(
            each, pays=replace(each.pays, estimate=gain), reason=reason.get(each.arm, each.reason)
        )
        for each in decision.server
    )
    assert made(replace(decision, server=fast)).why == (
        "Turns take about a fifth of the time, and answers are as accurate at 8k to 128k "
        "(−2.2 pp at worst, 3 pp are accepted). The KV pool of BF16 is full 90% of the time, "
        "that of FP8 skip-SW 80% of it."
    )


def test_what_was_published_is_called_so_wherever_it_decides() -> None:
    decision = sample.decision()
    said = "vLLM blog, closed as of 2026-09: FA3: needle at 128k fell from 91% to 13%."
    issue = Finding(
        rule="known_issues",
        kind="blocks",
        arm="fp8-skip-sw",
        message=said,
        leg="safe",
        asks_for="avoid",
        prior=True,
    )
    worse = tuple(
        replace(
            each,
            verdict="avoid",
            safe=replace(each.safe, state="no", reason=f"{said[:-1]}; no answers"),
            reason=f"Answers are worse: {said}",
        )
        for each in decision.server
    )
    told = made(replace(decision, server=worse, findings=(issue,)))
    assert told.why.startswith("Published, not measured here: vLLM blog")
    assert (told.sure.effect, told.sure.because) == ("likely", "published, not measured here")
    (row,) = (each for each in told.arms.rows if "published, not measured here" in each[0].text)
    assert row[-2].text == "needle at 128k fell from 91% to 13% ✗"


def test_a_remedy_of_a_simulation_is_a_thing_to_do_and_no_command_that_plays_the_same_again() -> (
    None
):
    decision = sample.decision()
    mended = replace(decision.server[0], verdict="avoid", remedy="upgrade vLLM to 0.19.1")
    told = made(replace(decision, kind="simulated", server=(mended, *decision.server[1:]))).do_now
    assert (told[0].text, told[0].command) == (
        "Upgrade vLLM to 0.19.1 on your servers before you test FP8.",
        None,
    )


def test_a_class_asks_for_nothing_of_its_own_while_the_whole_server_is_open() -> None:
    decision = sample.decision()
    need = Need(what="paired calls of the mix", calls=900, minutes=9.0, step=MorePairs(pairs=60))
    is_open = tuple(
        replace(each, verdict="test further", needs=(need,)) for each in decision.server
    )
    told = made(
        replace(decision, server=is_open, needs=(need, *decision.needs)), facts=sample.facts()
    )
    items = told.lists[3].items
    assert [each for each in items if "+260" in each] == []
    assert [step.cost for step in told.do_now if step.cost] == ["900 calls, 9 min"]
