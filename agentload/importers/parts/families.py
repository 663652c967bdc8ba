"""Transcripts and the sub-agents that they started, as sessions with the edges between them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentload.importers.parts.dialogue import Dialogue
from agentload.importers.parts.entries import Entry, Joined, play, spawns
from agentload.importers.parts.intake import Intake
from agentload.importers.parts.order import in_order
from agentload.importers.parts.pieces import Piece
from agentload.model.trace import Session, TurnRef, Wait


@dataclass(slots=True, kw_only=True, eq=False)
class Transcript:
    """One conversation's entries, read when its turn comes."""

    read: Callable[[], Sequence[Entry]]
    key: str
    """What other transcripts call it."""
    workload: str
    began_s: float
    """A time before which it has no call."""
    lead: str | None = None
    """What a system prompt and tools that the transcript does not show are called; equal names share. None: it shows all."""
    spawned_by: str | None = None
    opening: Callable[[], Sequence[Piece]] = tuple
    """Reads the system prompt and tools, where they are recorded."""
    asked: Wait | None = None
    """What all its calls waited for, where their roles do not tell."""
    children: "list[Transcript]" = field(default_factory=list)


def sessions(intake: Intake, found: Iterable[Transcript]) -> Iterator[Session]:
    """Yield a session for each transcript with a call, each sub-agent behind the one that started it."""
    transcripts = list(found)
    origin_s = min((one.began_s for one in transcripts), default=0.0)
    yield from in_order(grown(intake, transcripts, name="s", origin_s=origin_s))


def grown(intake: Intake, found: Iterable[Transcript], *, name: str, origin_s: float) -> Iterator[tuple[float, list[Session]]]:
    """Yield (time before which it does not start, sessions) of each family, in order of that time."""
    transcripts = list(found)
    by_key: dict[str, list[Transcript]] = {}
    for transcript in transcripts:
        by_key.setdefault(transcript.key, []).append(transcript)
    roots = sorted((one for one in transcripts if not _is_adopted(one, by_key)), key=lambda one: one.began_s)
    for number, root in enumerate(roots):
        yield root.began_s - origin_s, _family(intake, root, f"{name}{number}", origin_s, spawned_s=None)[0]


def _is_adopted(transcript: Transcript, by_key: Mapping[str, Sequence[Transcript]]) -> bool:
    """Give a transcript to the one that started it, unless they started each other."""
    parent = _above(transcript, by_key)
    seen = [transcript]
    ancestor = parent
    while ancestor is not None:
        if any(ancestor is one for one in seen):
            return False
        seen.append(ancestor)
        ancestor = _above(ancestor, by_key)
    if parent is not None:
        parent.children.append(transcript)
    return parent is not None


def _above(transcript: Transcript, by_key: Mapping[str, Sequence[Transcript]]) -> Transcript | None:
    """Return the parent: of those with its key, which a reset or a rollover makes several, the last that had begun."""
    found = () if transcript.spawned_by is None else by_key.get(transcript.spawned_by, ())
    return max((one for one in found if one.began_s <= transcript.began_s), key=lambda one: one.began_s, default=next(iter(found), None))


def _family(
    intake: Intake, transcript: Transcript, name: str, origin_s: float, *, spawned_s: float | None
) -> tuple[list[Session], float | None]:
    """Return a session and those that it started, and when it was over."""
    found = transcript.read()
    main = next((entry.model for entry in found if entry.timing is not None), None)
    opening = tuple(transcript.opening())
    lead = None if opening or transcript.lead is None else intake.identity.of("system", transcript.lead)
    dialogue = Dialogue(intake=intake, origin_s=origin_s, lead=lead, opening=opening, spawned_s=spawned_s)
    told = dict(spawns(found))
    families: list[tuple[float, list[Session], float | None]] = []
    for position, child in enumerate(sorted(transcript.children, key=lambda one: one.began_s)):
        at_s = told.get(child.key, _last_done(found, child.began_s))
        family, done_s = _family(intake, child, f"{name}.{position + 1}", origin_s, spawned_s=at_s)
        if family:
            families.append((at_s, family, done_s))
    joins = [Joined(ref=TurnRef(session=family[0].session, turn=-1), done_s=done_s) for _, family, done_s in families if done_s is not None]
    play(dialogue, found, main=main, asked=transcript.asked, joins=joins)
    if not dialogue.turns:
        intake.notes.drop("a session without a call")
        return [], None
    for at_s, family, _ in families:
        dialogue.spawn(family[0].session, at_s)
    own = dialogue.session(name, workload=transcript.workload)
    return [own, *(session for _, family, _ in families for session in family)], dialogue.ready_s


def _last_done(found: Sequence[Entry], until_s: float) -> float:
    ends = [entry.timing.done_s for entry in found if entry.timing is not None and entry.timing.done_s is not None]
    return max((at for at in ends if at <= until_s), default=min(ends, default=until_s))
