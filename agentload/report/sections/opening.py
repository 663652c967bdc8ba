"""Write the opening of a report, and its four lists.

The opening says what was compared, what to do and why, what was not measured, and what would
change the decision.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from advisor import words
from advisor.estimate import present
from advisor.evidence import Kind
from advisor.verdict import ArmVerdict, Leg, Word
from agentload.evidence.described import UNKNOWN_GPU
from agentload.report import format as say
from agentload.report import labels
from agentload.report.lookup import by_key, first
from agentload.report.parts import Answer, Listing, Tone
from agentload.report.sections.arms import need
from agentload.report.sections.gpus import saving
from agentload.report.sections.view import View
from agentload.report.sections.wording import reason_in_words

BANNERS: Final[dict[Kind, str]] = {
    "measured": "Measured on real servers; no simulated numbers.",
    "emulated": "Emulated: the servers reproduce a published profile over real sockets. "
    "This shows how a decision looks, nothing about your servers.",
    "simulated": "Simulated: computed from a profile; no server was run. "
    "This shows what the profile implies; it says nothing about your servers.",
}

_UNLIKE: Final = {
    "on a CPU": ("latency", "a GPU"),
    "with random weights": ("accuracy", "a trained model"),
}
"""Which figures of such a run carry over to no server in use, and to which servers."""
_COMPARED: Final[dict[Word, str]] = {
    "use": "faster",
    "avoid": "slower",
    "no difference": "no change beyond {}",
    "calibrate": "undecided",
    "test further": "undecided",
}
"""What the later of two runs is; {} is the change from which on a difference counts."""
_ENGINES: Final = {"vllm": "vLLM", "sglang": "SGLang"}


def banner(view: View) -> str:
    """Say what kind of evidence this is, and where its figures do not carry over."""
    unlike = view.unlike
    if view.decision.kind != "measured" or not unlike:
        return BANNERS[view.decision.kind]
    figures, servers = zip(*(_UNLIKE[each] for each in unlike), strict=True)
    return (
        f"Measured {' '.join(unlike)}. This shows the method on real servers; no "
        f"{' or '.join(figures)} here carries over to {' or '.join(servers)}."
    )


def where(view: View) -> str:
    """Name hardware and engine, as far as they are known."""
    deployment = view.evidence.deployment
    gpus = deployment.gpu.name
    if gpus == UNKNOWN_GPU and view.decision.kind != "measured":
        gpus = ""
    if gpus and deployment.gpus_per_replica > 1:
        gpus = f"{deployment.gpus_per_replica} × {gpus}"
    # Servers without a name go by their address.
    hosts = {name.rpartition(":")[0] or name for name in deployment.machines}
    machines = f"{len(hosts)} machines" if len(hosts) > 1 else ""
    return say.join((gpus, machines, _engine(view)))


def _engine(view: View) -> str:
    deployment = view.evidence.deployment
    name = _ENGINES.get(deployment.engine, deployment.engine)
    return f"{name} {deployment.version or ''}".strip()


def about(view: View) -> tuple[str, ...]:
    """Name workloads, hardware, engine and the model's layers, as far as they are known."""
    several = "s" if len(view.workloads) > 1 else ""
    named = f"workload{several} {say.enumeration(view.workloads)}" if view.workloads else ""
    return tuple(filter(None, (named, where(view), _layers(view))))


def by_workload(view: View) -> str:
    """Give the verdict for each of several classes: `rag, code: avoid · chat: use`.

    Classes with the same verdicts on the same arms stand together.
    """
    if len(view.workloads) < 2 or view.compares_runs:
        return ""
    verdicts = {name: present(view.verdicts(name)) for name in view.workloads}
    names_of = by_key(
        ((_words(known), *(each.arm for each in known)), name) for name, known in verdicts.items()
    )
    parts = [f"{', '.join(names)}: {words}" for (words, *_), names in names_of.items()]
    return " · ".join(parts)


def _words(known: Sequence[ArmVerdict]) -> str:
    """Say the verdicts of a class, each after its arm; one that all arms have is said once."""
    found = [f"{each.verdict}{labels.up_to(each.holds_to)}" for each in known]
    if len(set(found)) == 1:
        return found[0]
    each_arm = (f"{labels.arm(of.arm)} {word}" for of, word in zip(known, found, strict=True))
    return ", ".join(each_arm) or "too few calls"


def _layers(view: View) -> str:
    """Say how the model's layers attend, where it matters to the KV cache."""
    model = view.evidence.model
    if model.window_layers:
        return f"{model.window_layers} sliding-window and {model.full_layers} full-attention layers"
    return "multi-head latent attention" if model.attention == "mla" else ""


def identity(view: View) -> str:
    """Say what the reference's server was, how each other one differed, and if any changed."""
    reference = _server(view, view.reference)
    servers = [f"{view.against}: {say.join((_engine(view), *reference.values()))}"]
    for arm in view.others:
        own = _server(view, arm)
        different = [own[part] or f"no {part}" for part in own if own[part] != reference[part]]
        same = f"{labels.arm(arm)}: the same"
        servers.append(say.join((same, ", ".join(different)), " with "))
    return f"{'; '.join(servers)}. {_changes_during_run(view)}."


def _server(view: View, name: str) -> dict[str, str]:
    """Return what distinguishes servers, by the name of each part.

    A dtype that was asked for and could not be read says so.
    """
    arm = view.evidence.arm(name)
    reference = view.evidence.arm(view.reference)
    dtype = arm.observed_dtype or arm.expected_dtype or "not known"
    if not arm.observed_dtype and arm.expected_dtype and view.decision.kind != "simulated":
        dtype += " (not confirmed by the server)"
    skipped = ", ".join(arm.skip_layers)
    served = first(view.facts.made.servers, arm=name)
    return {
        "model": arm.weights or view.evidence.model.name,
        "KV dtype": f"KV dtype {dtype}",
        "kernel": f"kernel {arm.kernel}" if arm.kernel else "",
        "skipped layers": f"skipped layers {skipped}" if skipped else "",
        "driver": served.under if served is not None else "",
        "flags": "other flags" if arm.flags != reference.flags else "",
    }


def _changes_during_run(view: View) -> str:
    """Say whether a server changed during the run, and where that could not be seen."""
    if view.decision.kind == "simulated":
        return "Simulated, so none could change"
    steady = {each.arm: each.steady for each in view.facts.made.servers}
    changed = [labels.arm(arm) for arm in view.arms if steady.get(arm) is False]
    unseen = [labels.arm(arm) for arm in view.arms if steady.get(arm) is None]
    said = []
    if changed:
        said.append(f"{say.enumeration(changed)} changed during the run")
    if unseen:
        said.append(f"Whether {say.enumeration(unseen)} changed during the run was not verified")
    if not said:
        none = {1: "It did not change", 2: "Neither changed"}.get(len(view.arms), "None changed")
        said.append(f"{none} during the run")
    if view.evidence.deployment.swapped:
        said.append("The arms changed machines half way, as planned")
    return ". ".join(said)


def headline(view: View) -> tuple[str, Tone]:
    """Say in a few words what to do; of two runs, how the later one compares."""
    choice = view.decision.choice
    if not view.compares_runs:
        return view.typeset(choice.headline), labels.VERDICT_TONES[choice.verdict]
    margin = view.policy.min_change
    verdict = view.focus_verdict
    if verdict is not None and verdict.pays.margin is not None:
        margin = verdict.pays.margin
    said = _COMPARED[choice.verdict].format(say.percent(margin))
    change = view.change("turn_ms", view.focus, None)
    if change is not None:
        said += f": turn latency {say.change(change.relative)}"
    return said, "bad" if choice.verdict == "avoid" else "plain"


def why(view: View) -> str:
    """Give the reason for the decision in words."""
    if view.compares_runs:
        before, after = view.facts.made.compared_with, view.decision.run
        return (
            f"The same plan was played in {before} and in {after}, turn by turn on the same bytes."
        )
    verdict = view.focus_verdict
    if verdict is None:
        return "Only one arm was measured, so there is nothing to compare."
    return reason_in_words(view, verdict)


def gaps(view: View) -> str:
    """List what the run did not measure, with the reason where there is one.

    Empty where nothing is missing.
    """
    saved = saving(view)
    is_timed = any(change.metric == "turn_ms" for change in view.decision.changes)
    blind = _checks_without_data(view)
    missing = {
        "turn latency": not is_timed,
        "agents per GPU": not view.has_agents_per_gpu,
        f"GPUs saved ({saved.because})": saved.tone == "muted" and not view.compares_runs,
        "accuracy": not view.evidence.accuracy,
        "likeness to production (report --against)": view.facts.production is None,
        f"validity checks that lacked data: {', '.join(blind)}": blind,
    }
    return say.join_if(missing, "; ")


def _checks_without_data(view: View) -> list[str]:
    """Name the validity checks that could look at nothing, on no arm."""
    gates = view.decision.gates
    seen = {gate.name for gate in gates if gate.status != "not observed"}
    blind = {gate.name for gate in gates} - seen
    return sorted(name.replace("_", " ") for name in blind)


def flips(view: View) -> str:
    """Say what would change the decision; nothing is decided between two runs."""
    if view.compares_runs:
        return ""
    return view.typeset(" · ".join(view.decision.flips))


def answers(view: View) -> tuple[Answer, ...]:
    """Answer three questions for the arm the report speaks for.

    Of two runs, only whether the later one is faster.
    """
    verdict = view.focus_verdict
    if verdict is None:
        return (saving(view),)
    speed = _leg(view, "Faster or cheaper?", verdict.pays)
    if view.compares_runs:
        return (speed,)
    return speed, _leg(view, "As accurate?", verdict.safe), saving(view)


def _leg(view: View, question: str, leg: Leg) -> Answer:
    word, tone = labels.LEG_WORDS[leg.state]
    return Answer(question=question, word=word, tone=tone, because=view.typeset(leg.reason))


def asides(view: View) -> tuple[tuple[str, str], ...]:
    """List what a colleague asks next, each with its answer."""
    choice = view.decision.choice
    said: dict[str, str | None] = {}
    if not view.compares_runs:
        said["One flag for all, or split?"] = choice.split_pools
        if choice.runner_up:
            said[f"Why not {labels.arm(choice.runner_up)}?"] = choice.why_it_lost
    said["Caveats"] = " · ".join(_caveats(view))
    return tuple((label, view.typeset(text)) for label, text in said.items() if text)


def _caveats(view: View) -> Iterator[str]:
    """Yield what the banner and the failed checks do not say yet."""
    gates = {f"{gate.name}: {gate.message}." for gate in view.decision.gates}
    for caveat in view.decision.caveats:
        if caveat not in gates and not caveat.startswith("All figures are"):
            yield caveat.rstrip(".")


# These headings were in use before this report, and people search for them.
HEADINGS: Final[tuple[tuple[str, Word], ...]] = (
    ("Use {} for", "use"),
    ("Avoid {} for", "avoid"),
    ("Need calibration for", "calibrate"),
    ("Need further testing for", "test further"),
)


def lists(view: View) -> tuple[Listing, ...]:
    """Sort every verdict into its list, which may be empty."""
    found = []
    for heading, word in HEADINGS:
        items = _items(view, word)
        if word == "test further":
            items += _beyond(view)
        arms = [arm for arm in view.others if _of_arm(view, arm, word)]
        said = heading.format(view.subject(arms))
        found.append(Listing(heading=said, word=word, items=items))
    return tuple(found)


def no_difference(view: View) -> tuple[str, ...]:
    """Name the classes for which the arms were shown to be equal."""
    return _items(view, "no difference")


def _items(view: View, word: Word) -> tuple[str, ...]:
    return tuple(item for arm in view.focus_first for item in _of_arm(view, arm, word))


def _of_arm(view: View, arm: str, word: Word) -> tuple[str, ...]:
    """Name what of an arm has this verdict: its classes, or the whole server."""
    known = present(view.verdict(arm, name) for name in view.workloads)
    classes = [each for each in known if each.verdict == word]
    server = view.verdict(arm, None)
    if server is not None and server.verdict != word:
        server = None
    name = labels.arm(arm)
    if word in ("calibrate", "test further"):
        # One line for the server is enough where every class has this verdict, or no class has.
        if server is not None and len(classes) in (0, len(view.workloads)):
            return (f"{name}, the whole server{_missing(view, server)}",)
        if word == "test further":
            return tuple(f"{each.workload} ({name}{_missing(view, each)})" for each in classes)
    if classes:
        named = (f"{each.workload}{labels.up_to(each.holds_to)}" for each in classes)
        return (f"{', '.join(named)} ({name})",)
    if server is not None and not view.workloads:
        return (f"the whole server ({name})",)
    return ()


def _missing(view: View, verdict: ArmVerdict) -> str:
    """Say in full what a verdict still takes."""
    return need(view.decision, verdict, is_whole=True)


def _beyond(view: View) -> tuple[str, ...]:
    """Name the contexts for which the arm in focus was not tested, if calls have any."""
    verdict = view.focus_verdict
    if verdict is None or not verdict.untested_share:
        return ()
    asked = [each.context_tokens for each in view.evidence.accuracy if each.arm == view.focus]
    longest = verdict.holds_to or max(asked, default=None)
    contexts = "contexts outside the tested range"
    if longest:
        contexts = f"contexts above {words.length(longest)}"
    share = say.percent(verdict.untested_share)
    stay = f"stay on {view.against} or cap"
    return (f"{contexts} ({share} of your calls, not tested: {stay})",)
