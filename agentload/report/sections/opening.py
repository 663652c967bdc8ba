"""The opening: what was compared, what to do and why, what
was not measured, what would change it; then the four lists.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from advisor import words
from advisor.evidence import Kind
from advisor.verdict import ArmVerdict, Leg, Word
from agentload.evidence.described import UNKNOWN_GPU
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Answer, Listing, Tone
from agentload.report.sections.arms import need, saved
from agentload.report.sections.view import View

BANNERS: Final[dict[Kind, str]] = {
    "measured": "Measured on real servers; no simulated numbers.",
    "emulated": "Emulated: the servers reproduce a published profile over "
    "real sockets. This shows how "
    "a decision looks, "
    "nothing about your servers.",
    "simulated": "Simulated: computed from a profile; no server was run. "
    "This shows what the profile "
    "implies; "
    "it says nothing about your servers.",
}

_SINCE: Final[dict[Word, str]] = {
    "use": "faster",
    "avoid": "slower",
    "no difference": "no change beyond {}",
    "calibrate": "undecided",
    "test further": "undecided",
}


_ENGINES: Final = {"vllm": "vLLM", "sglang": "SGLang"}


def banner(view: View) -> str:
    """Say what kind of evidence this is, and where the
    figures do not carry over to the servers that people use.
    """
    random = "random" in view.evidence.model.name.lower() or any(
        "dummy" in arm.flags for arm in view.evidence.arms
    )
    is_cpu = view.evidence.deployment.gpu.name.upper().startswith("CPU")
    if view.decision.kind != "measured" or not (random or is_cpu):
        return BANNERS[view.decision.kind]
    on, model = " on a CPU" if is_cpu else "", " with random weights" if random else ""
    carries = " or ".join((*(("latency",) if is_cpu else ()), *(("accuracy",) if random else ())))
    over = " or ".join((*(("a GPU",) if is_cpu else ()), *(("a trained model",) if random else ())))
    return (
        f"Measured{on}{model}. This shows the method on real servers; no {carries} here carries "
        f"over to {over}."
    )


def where(view: View) -> str:
    """Name hardware and engine, as far as they are known."""
    deployment = view.evidence.deployment
    name = (
        deployment.gpu.name
        if deployment.gpu.name != UNKNOWN_GPU
        else UNKNOWN_GPU
        if view.decision.kind == "measured"
        else ""
    )
    gpus = (
        f"{deployment.gpus_per_replica} × {name}"
        if name and deployment.gpus_per_replica > 1
        else name
    )
    hosts = {
        name.rpartition(":")[0] or name for name in deployment.machines
    }  # servers nobody named go by their address
    machines = f"{len(hosts)} machines" if len(hosts) > 1 else ""
    return ", ".join(part for part in (gpus, machines, _engine(view)) if part)


def _engine(view: View) -> str:
    deployment = view.evidence.deployment
    return (
        f"{_ENGINES.get(deployment.engine, deployment.engine)} {deployment.version or ''}".strip()
    )


def about(view: View) -> tuple[str, ...]:
    """Name the workloads, hardware and engine, and the model's layers, as far as they are known."""
    several = "s" if len(view.workloads) > 1 else ""
    named = f"workload{several} {say.listed(view.workloads)}" if view.workloads else ""
    return tuple(part for part in (named, where(view), _layers(view)) if part)


def by_workload(view: View) -> str:
    """Give the verdict for each of several classes, those with
    the same verdicts together: `rag, code: avoid · chat: use`.
    """
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in view.workloads if view.facts.made.compared_with is None else ():
        found = ((arm, view.verdict(arm, name)) for arm in view.arms[1:])
        alike.setdefault(
            tuple(
                (labels.arm(arm), f"{each.verdict}{labels.up_to(each.holds_to)}")
                for arm, each in found
                if each is not None
            ),
            [],
        ).append(name)
    if len(view.workloads) < 2:
        return ""
    return " · ".join(f"{', '.join(names)}: {_words(key)}" for key, names in alike.items())


def _words(verdicts: Sequence[tuple[str, str]]) -> str:
    """Say the verdicts of a class, each after its arm; one that all arms have is said once."""
    if len({word for _, word in verdicts}) == 1:
        return verdicts[0][1]
    return ", ".join(f"{arm} {word}" for arm, word in verdicts) or "too few calls"


def _layers(view: View) -> str:
    """Say how the model's layers attend, where it matters to the KV cache."""
    model = view.evidence.model
    if model.window_layers:
        return f"{model.window_layers} sliding-window and {model.full_layers} full-attention layers"
    return "multi-head latent attention" if model.attention == "mla" else ""


def identity(view: View) -> str:
    """Say what the reference's server was, what set
    each other one apart, and whether any changed.
    """
    first = _server(view, view.evidence.reference)
    said = [
        (
            f"{labels.arm(view.evidence.reference)}: "
            f"{', '.join(filter(None, (_engine(view), *first.values())))}"
        )
    ]
    for arm in view.arms[1:]:
        apart = [
            own or f"no {name}" for name, own in _server(view, arm).items() if own != first[name]
        ]
        said.append(
            f"{labels.arm(arm)}: the same with {', '.join(apart)}"
            if apart
            else f"{labels.arm(arm)}: the same"
        )
    return f"{'; '.join(said)}. {_stayed(view)}."


def _server(view: View, name: str) -> dict[str, str]:
    """Return what sets servers apart, by what it is;
    what was asked for and could not be read says so.
    """
    arm = view.evidence.arm(name)
    unread = "" if view.decision.kind == "simulated" else " (not confirmed by the server)"
    dtype = arm.observed_dtype or (
        f"{arm.expected_dtype}{unread}" if arm.expected_dtype else "not known"
    )
    return {
        "model": arm.weights or view.evidence.model.name,
        "KV dtype": f"KV dtype {dtype}",
        "kernel": f"kernel {arm.kernel}" if arm.kernel else "",
        "skipped layers": f"skipped layers {', '.join(arm.skip_layers)}" if arm.skip_layers else "",
        "flags": "other flags"
        if arm.flags != view.evidence.arm(view.evidence.reference).flags
        else "",
    }


def _stayed(view: View) -> str:
    """Say whether a server became another during the run, and what nobody could see of that."""
    if view.decision.kind == "simulated":
        return "Simulated, so none could change"
    read = {each.arm: each.steady for each in view.facts.made.servers}
    changed = [labels.arm(arm) for arm in view.arms if read.get(arm) is False]
    unseen = [labels.arm(arm) for arm in view.arms if read.get(arm) is None]
    none = {1: "It did not change", 2: "Neither changed"}.get(len(view.arms), "None changed")
    parts = (
        f"{say.listed(changed)} changed during the run" if changed else "",
        f"Whether {say.listed(unseen)} changed during the run was not verified" if unseen else "",
        "" if changed or unseen else f"{none} during the run",
        "The arms changed machines half way, as planned"
        if view.evidence.deployment.swapped
        else "",
    )
    return ". ".join(part for part in parts if part)


def headline(view: View) -> tuple[str, Tone]:
    """Say in a few words what to do; of two runs, how the later one compares."""
    verdict = view.decision.choice.verdict
    if view.facts.made.compared_with is None:
        return view.typeset(view.decision.choice.headline), labels.VERDICT_TONES[verdict]
    change, leg = view.change("turn_ms", view.focus, None), view.verdict(view.focus, None)
    beyond = view.policy.min_change if leg is None or leg.pays.margin is None else leg.pays.margin
    told = "" if change is None else f": turn latency {say.change(change.relative)}"
    return (
        f"{_SINCE[verdict].format(say.percent(beyond))}{told}",
        "bad" if verdict == "avoid" else "plain",
    )


def why(view: View) -> str:
    """Give the reason for the decision in a sentence, with the level of its intervals."""
    if (before := view.facts.made.compared_with) is not None:
        return (
            f"The same plan was played in {before} and in {view.decision.run}, turn by turn on "
            "the same bytes."
        )
    verdict = view.verdict(view.focus, None)
    if verdict is None:
        return "Only one arm was measured, so there is nothing to compare."
    told, level = verdict.reason, None
    for leg in (verdict.pays, verdict.safe):
        # The first letter is a capital where the sentence begins with it.
        if (
            leg.estimate is not None
            and leg.estimate.level != level
            and (words := leg.reason[1:]) in told
        ):
            level = leg.estimate.level
            told = told.replace(words, words.replace("]", f"] ({100 * level:.3g}% interval)", 1))
    return view.typeset(told)


def unmeasured(view: View) -> str:
    """List what the run says nothing of, with the reason
    where there is one; empty where nothing is missing.
    """
    decision, gates = view.decision, view.decision.gates
    gpus = saved(view, view.focus)
    parts = [
        *(
            ()
            if any(change.metric == "turn_ms" for change in decision.changes)
            else ("turn latency",)
        ),
        *(
            ()
            if any(each.agents_per_gpu is not None for each in decision.capacity)
            else ("agents per GPU",)
        ),
        *(
            (f"GPUs saved ({gpus.because})",)
            if gpus.tone == "muted" and view.facts.made.compared_with is None
            else ()
        ),
        *(() if view.evidence.accuracy else ("accuracy",)),
        *(
            ()
            if view.facts.production is not None
            else ("likeness to production (report --against)",)
        ),
    ]
    seen = {gate.name for gate in gates if gate.status != "not observed"}
    if missing := sorted(
        {gate.name.replace("_", " ") for gate in gates} - {name.replace("_", " ") for name in seen}
    ):
        parts.append(f"validity checks that lacked data: {', '.join(missing)}")
    return "; ".join(parts)


def flips(view: View) -> str:
    """Say what would change the decision; nothing is decided between two runs."""
    return "" if view.facts.made.compared_with else view.typeset(" · ".join(view.decision.flips))


def answers(view: View) -> tuple[Answer, ...]:
    """Answer three questions for the arm the report speaks
    for; of two runs, only whether the later one is faster.
    """
    verdict = view.verdict(view.focus, None)
    if verdict is None:
        return (saved(view, view.focus),)
    speed = _leg(view, "Faster or cheaper?", verdict.pays)
    if view.facts.made.compared_with is not None:
        return (speed,)
    return speed, _leg(view, "As accurate?", verdict.safe), saved(view, view.focus)


def _leg(view: View, question: str, leg: Leg) -> Answer:
    word, tone = labels.LEG_WORDS[leg.state]
    return Answer(question=question, word=word, tone=tone, because=view.typeset(leg.reason))


def asides(view: View) -> tuple[tuple[str, str], ...]:
    """List what a colleague asks next, each with its answer."""
    choice = view.decision.choice
    other = labels.arm(choice.runner_up) if choice.runner_up else ""
    pairs = (
        ("One flag for all, or split?", choice.split_pools),
        (f"Why not {other}?", choice.why_it_lost or "" if other else ""),
        ("Caveats", " · ".join(_caveats(view))),
    )
    return tuple(
        (label, view.typeset(text))
        for label, text in pairs[2 if view.facts.made.compared_with else 0 :]
        if text
    )


def _caveats(view: View) -> Iterator[str]:
    """Yield what the banner and the failed checks do not say yet."""
    gates = {f"{gate.name}: {gate.message}." for gate in view.decision.gates}
    yield from (
        caveat.rstrip(".")
        for caveat in view.decision.caveats
        if caveat not in gates and not caveat.startswith("All figures are")
    )


# The headings are those of the practice this report grew out of; people search for them.
HEADINGS: Final[tuple[tuple[str, Word], ...]] = (
    ("Use {} for", "use"),
    ("Avoid {} for", "avoid"),
    ("Need calibration for", "calibrate"),
    ("Need further testing for", "test further"),
)


def lists(view: View) -> tuple[Listing, ...]:
    """Sort every verdict into its list, which may be empty."""
    return tuple(
        Listing(
            heading=heading.format(view.subject),
            word=word,
            items=(*_items(view, word), *(_beyond(view) if word == "test further" else ())),
        )
        for heading, word in HEADINGS
    )


def no_difference(view: View) -> tuple[str, ...]:
    """Name the classes for which the arms were shown to be equal."""
    return _items(view, "no difference")


def _items(view: View, word: Word) -> tuple[str, ...]:
    arms = sorted(view.arms[1:], key=lambda arm: arm != view.focus)
    return tuple(item for arm in arms for item in _of_arm(view, arm, word))


def _of_arm(view: View, arm: str, word: Word) -> tuple[str, ...]:
    verdicts = [
        each
        for name in view.workloads
        if (each := view.verdict(arm, name)) is not None and each.verdict == word
    ]
    server = view.verdict(arm, None)
    if (
        word in ("calibrate", "test further")
        and server is not None
        and server.verdict == word
        and _covers(verdicts, view)
    ):
        return (f"{labels.arm(arm)}, the whole server{need(server, is_whole=True)}",)
    if word == "test further":
        return tuple(
            f"{each.workload} ({labels.arm(arm)}{need(each, is_whole=True)})" for each in verdicts
        )
    if verdicts:
        named = (f"{each.workload}{labels.up_to(each.holds_to)}" for each in verdicts)
        return (f"{', '.join(named)} ({labels.arm(arm)})",)
    if server is not None and server.verdict == word and not view.workloads:
        return (f"the whole server ({labels.arm(arm)})",)
    return ()


def _covers(verdicts: Sequence[ArmVerdict], view: View) -> bool:
    """Say whether one line for the server is enough: every class has its verdict, or none has."""
    return len(verdicts) in (0, len(view.workloads))


def _beyond(view: View) -> tuple[str, ...]:
    verdict = view.verdict(view.focus, None)
    if verdict is None or not verdict.untested_share:
        return ()
    asked = max(
        (bucket.context_tokens for bucket in view.evidence.accuracy if bucket.arm == view.focus),
        default=None,
    )
    longest = verdict.holds_to or asked
    contexts = (
        f"contexts above {words.length(longest)}"
        if longest
        else "contexts outside the tested range"
    )
    stay = f"stay on {labels.arm(view.evidence.reference)} or cap"
    return (
        f"{contexts} ({say.percent(verdict.untested_share)} of your calls, not tested: {stay})",
    )
