"""The opening: what was compared, what to do, whether it pays, is safe and saves GPUs; then the four lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from advisor.evidence import Kind
from advisor.verdict import ArmVerdict, Capacity, Leg, Word
from agentload.evidence.described import UNKNOWN_GPU
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Answer, Listing, Tone
from agentload.report.sections.screens import need
from agentload.report.sections.view import View

BANNERS: Final[dict[Kind, str]] = {
    "measured": "Measured on real servers; nothing in the tables is simulated.",
    "emulated": "Emulated: the servers were stand-ins that follow a published profile, reached over real sockets. "
    "It shows how the decision is made, not what your servers do.",
    "simulated": "Simulated: computed from a profile, without servers or sockets. "
    "It shows what the profile implies, not what your servers do.",
}

HOURS_A_MONTH: Final = 730  # a twelfth of a year

_SINCE: Final[dict[Word, str]] = {
    "use": "faster than in",
    "avoid": "slower than in",
    "no difference": "as fast as in",
    "calibrate": "not settled against",
    "test further": "not settled against",
}


def where(view: View) -> str:
    """Name hardware and engine, as far as they are known."""
    deployment = view.evidence.deployment
    name = deployment.gpu.name if deployment.gpu.name != UNKNOWN_GPU else UNKNOWN_GPU if view.decision.kind == "measured" else ""
    gpus = f"{deployment.gpus_per_replica} × {name}" if name and deployment.gpus_per_replica > 1 else name
    machines = f"{len(deployment.machines)} machines" if len(deployment.machines) > 1 else ""
    engine = {"vllm": "vLLM", "sglang": "SGLang"}.get(deployment.engine, deployment.engine)
    return ", ".join(part for part in (gpus, machines, f"{engine} {deployment.version or ''}".strip()) if part)


def layers(view: View) -> str:
    """Say how the model's layers attend, where it matters to the KV cache."""
    model = view.evidence.model
    if model.window_layers:
        return f"{model.window_layers} window : {model.full_layers} full layers"
    return "multi-head latent attention" if model.attention == "mla" else ""


def headline(view: View) -> tuple[str, Tone]:
    """Say in a few words what to do; of two runs, how the later one stands."""
    verdict = view.decision.choice.verdict
    if view.facts.made.compared_with is None:
        return view.told(view.decision.choice.headline), labels.VERDICT_TONES[verdict]
    change = view.change("turn_ms", view.focus, None)
    told = "" if change is None else f", turn time {say.estimate(change.relative)}"
    return f"{_SINCE[verdict]} {view.facts.made.compared_with}{told}; one run each: a restart or a neighbour may be all of it", "plain"


def answers(view: View) -> tuple[Answer, ...]:
    """Answer the three questions of the first screen for the arm the report speaks for."""
    verdict = view.verdict(view.focus, None)
    legs = () if verdict is None else (_leg(view, "Pays", verdict.pays), _leg(view, "Safe", verdict.safe))
    return (*legs, _saved(view))


def _leg(view: View, question: str, leg: Leg) -> Answer:
    word, tone = labels.LEG_WORDS[leg.state]
    return Answer(question=question, word=word, tone=tone, because=view.told(leg.reason))


def _saved(view: View) -> Answer:
    question = "GPUs saved today"
    reference, focus = view.capacity(view.evidence.reference), view.capacity(view.focus)
    if reference is None or focus is None or reference.replicas_at_peak is None or focus.replicas_at_peak is None:
        known = all(each is not None and each.agents_per_gpu is not None for each in (focus, reference))
        reasons = [each.reason for each in (focus, reference) if each is not None and each.replicas_at_peak is None]
        if known and view.evidence.deployment.peak_agents is None:
            reasons = [f"{_carried(focus, reference)}; set load.peak_agents in the policy, the agents at your peak, to see the GPUs"]
        because = reasons[0] if reasons else "capacity was not measured"
        return Answer(question=question, word="not known", tone="muted", because=view.told(because))
    gpus = view.evidence.gpus
    saved = gpus(reference.arm) * reference.replicas_at_peak - gpus(focus.arm) * focus.replicas_at_peak
    word, is_sure = say.number(saved), True
    if reference.fewest_replicas is not None and focus.most_replicas is not None:
        surely = gpus(reference.arm) * reference.fewest_replicas - gpus(focus.arm) * focus.most_replicas
        word, is_sure = word if surely == saved else f"{say.number(surely)} to {word}", surely > 0
    elif focus.agents_per_gpu is not None and saved > 0:
        word, is_sure = f"up to {word}", False
    tone: Tone = "bad" if saved < 0 else "good" if saved > 0 and is_sure else "plain"
    return Answer(question=question, word=word, tone=tone, because=f"{_due(view, reference, focus)}{_money(view, saved)}")


def _carried(*found: Capacity | None) -> str:
    each = (f"{labels.arm(one.arm)} carries {say.spread(one.agents_per_gpu, say.whole)}" for one in found if one is not None)
    return f"{', '.join(each)} agents per GPU"


def _money(view: View, gpus: int) -> str:
    """Say what so many GPUs cost a month, where a price is known."""
    price = view.evidence.deployment.gpu.usd_per_hour
    if price is None or not gpus:
        return ""
    return f"; {say.number(abs(gpus) * price * HOURS_A_MONTH)} USD a month {'less' if gpus > 0 else 'more'} at {price:g} USD a GPU-hour"


def _due(view: View, reference: Capacity, focus: Capacity) -> str:
    peak = view.evidence.deployment.peak_agents
    at_peak = f" at your peak of {say.plural(peak, 'agent')}" if peak else ""
    need = f"{labels.arm(focus.arm)} needs {say.plural(focus.replicas_at_peak or 0, 'replica')}{at_peak}"
    need += f", {labels.arm(reference.arm)} {reference.replicas_at_peak}"
    if reference.next_replica_at_agents is None or focus.next_replica_at_agents is None:
        return need
    return f"{need}; the next one is due at {focus.next_replica_at_agents} agents instead of {reference.next_replica_at_agents}"


def asides(view: View) -> tuple[tuple[str, str], ...]:
    """Answer what a colleague asks next: one flag or two pools, who came second, what would turn the decision."""
    choice = view.decision.choice
    other = labels.arm(choice.runner_up) if choice.runner_up else ""
    pairs = (
        ("One flag for all, or split?", choice.split_pools),
        (f"Why not {other}?", choice.why_it_lost or "" if other else ""),
        ("Flips if", " · ".join(view.decision.flips)),
        ("Caveats", " · ".join(_caveats(view))),
    )
    return tuple((label, view.told(text)) for label, text in pairs if text)


def _caveats(view: View) -> Iterator[str]:
    """Yield what the banner and the failed gates, which are among the reasons to believe, do not say yet."""
    gates = {f"{gate.name}: {gate.message}." for gate in view.decision.gates}
    yield from (caveat.rstrip(".") for caveat in view.decision.caveats if caveat not in gates and not caveat.startswith("All figures are"))


# The headings are those of the practice this report grew out of; people search for them.
HEADINGS: Final[tuple[tuple[str, Word], ...]] = (
    ("Use {} for", "use"),
    ("Avoid {} for", "avoid"),
    ("Need calibration for", "calibrate"),
    ("Need further testing for", "test further"),
)


def lists(view: View) -> tuple[Listing, ...]:
    """Sort every verdict into its list; a list may be empty, and says so."""
    return tuple(
        Listing(
            heading=heading.format(view.subject), word=word, items=(*_items(view, word), *(_beyond(view) if word == "test further" else ()))
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
    verdicts = [each for name in view.workloads if (each := view.verdict(arm, name)) is not None and each.verdict == word]
    server = view.verdict(arm, None)
    if word in ("calibrate", "test further") and server is not None and server.verdict == word and _covers(verdicts, view):
        return (f"{labels.arm(arm)}, the whole server{need(server, is_whole=True)}",)
    if word == "test further":
        return tuple(f"{each.workload} ({labels.arm(arm)}{need(each, is_whole=True)})" for each in verdicts)
    if verdicts:
        return (f"{', '.join(each.workload or '' for each in verdicts)} ({labels.arm(arm)})",)
    if server is not None and server.verdict == word and not view.workloads:
        return (f"the whole server ({labels.arm(arm)})",)
    return ()


def _covers(verdicts: Sequence[ArmVerdict], view: View) -> bool:
    """Say whether the server's verdict is best told once: every class says the same, or none does."""
    return len(verdicts) in (0, len(view.workloads))


def _beyond(view: View) -> tuple[str, ...]:
    verdict = view.verdict(view.focus, None)
    if verdict is None or not verdict.untested_share:
        return ()
    longest = max((bucket.context_tokens for bucket in view.evidence.accuracy if bucket.arm == view.focus), default=None)
    contexts = f"contexts above {say.tokens(longest)}" if longest else "contexts outside the tested range"
    stay = f"stay on {labels.arm(view.evidence.reference)} or cap"
    return (f"{contexts} ({say.percent(verdict.untested_share)} of your calls, not tested: {stay})",)
