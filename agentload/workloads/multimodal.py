"""Messages with images: a vision model describes them, and the agent continues with the description.

A perception call to the model `vision` gets the images and a short prompt; its answer is passed as text to the waiting call of the main
agent (a live edge). With `handoff=inline` the main model gets the images itself; three messages later each is replaced by a marker,
which makes everything after it new to the prefix cache.
"""

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Final, Literal

from agentload.model.check import Has
from agentload.model.trace import Segment, Session, TurnRef, image_tokens
from agentload.plugins import Peak, Positive, Rate, Share, Spread
from agentload.prompts.images import digits, sized
from agentload.workloads.parts.draws import Choice, geometric, happens, lognormal, quantiles, seconds, tokens, uniform
from agentload.workloads.parts.talk import NO_PAUSE, Pause, Talk
from agentload.workloads.parts.targets import Target
from agentload.workloads.parts.times import PI_USER, starts

# ServeGen mm-image (alibaba/ServeGen, complete), at q10/25/50/75/90/95/99: tokens of an image, and text beside it 41/75/106 below the
# median; one image in 85 % of requests; answers of 87/254 at q50/90, which OpenClaw cuts at 500 characters.
_IMAGE: Final = quantiles(
    (0, 4), (0.10, 6), (0.25, 252), (0.50, 841), (0.75, 1_196), (0.90, 1_224), (0.95, 1_232), (0.99, 1_265), (1, 1_300)
)
_IMAGES: Final = Choice((0.85, 0.06, 0.06, 0.006, 0.006, 0.006, 0.006, 0.006))  # 1, 2-3 12 %, 4-8 3 %
_PROMPT: Final = uniform(40, 106)
_DESCRIPTION: Final = lognormal(87, 0.8, 4, 125)
_ASPECT: Final = uniform(0.75, 1.5)  # width over height: judgement

_USER: Final = lognormal(20, 1.1, 3, 2_000)  # pi sessions (badlogic/pi-mono), and OpenClaw's envelope
_ENVELOPE: Final = 60
_REPLY: Final = lognormal(350, 0.45)  # as in chat
_MESSAGES: Final = geometric(3, low=1)  # judgement
_PERCEPTION_DEADLINE_S: Final = 60.0  # OpenClaw docs/nodes/media-understanding.md
_MARKER: Final = 12  # `[image data removed - already processed by model]`, after three turns (docs/nodes/images.md)
_INLINE_TURNS: Final = 3

PREFIXES: Final = {
    "multimodal": (
        Segment(role="system", tokens=7_200, key="multimodal.system"),
        Segment(role="tools", tokens=8_800, key="multimodal.tools"),
    ),
    "multimodal_vision": (Segment(role="system", tokens=30, key="multimodal_vision.system"),),  # judgement
}
VARIANTS: Final[tuple[dict[str, object], ...]] = ({}, {"handoff": "inline"})
TARGETS: Final = {
    "image": Target(841, 1_224),
    "images@perception": Target(1, 2),
    "user@perception": Target(73, 99),
    "output@perception": Target(87, 125),
    "output": Target(350, 623),
}


def generate(
    rng: Random,
    *,
    sessions: Positive = 200,
    rate_per_s: Rate = 0.1,
    cv: Spread = 1.0,
    peak: Peak = 1.0,
    image_share: Share = 0.6,
    handoff: Literal["text", "inline"] = "text",
) -> Iterator[Session]:
    """Yield `sessions` conversations and their perception calls; the first message and a share of the others have images."""
    # Clients of the same ServeGen trace: CV q50 1.0, q75 4.0.
    converse = _handed if handoff == "text" else _inline
    for number, start_s in enumerate(islice(starts(rng, rate_per_s=rate_per_s, cv=cv, peak=peak), sessions)):
        seen = [True, *(happens(rng, image_share) for _ in range(round(_MESSAGES(rng.random())) - 1))]
        yield from converse(rng, f"multimodal-{number}", start_s, seen)


def _handed(rng: Random, name: str, start_s: float, seen: list[bool]) -> Iterator[Session]:
    talk = Talk(name, workload="multimodal", prefix="multimodal", leads=PREFIXES["multimodal"])
    perceptions = []
    for message, has_images in enumerate(seen):
        pause = Pause("user", seconds(rng, PI_USER)) if message else NO_PAUSE
        talk.add("user", _ENVELOPE + tokens(rng, _USER))
        after: tuple[TurnRef, ...] = ()
        if has_images:
            perception = _perception(rng, _perceives(name, message), start_s=None if message else start_s, pause=pause)
            perceptions.append(perception)
            # The user's pause comes before the perception; the agent continues when that is done.
            after, pause = (TurnRef(session=perception.session, turn=-1),), NO_PAUSE
            talk.put(Segment(role="user", tokens=perception.turns[-1].output, key=f"{perception.session}.text", source=after[0]))
        next_sees = message + 1 < len(seen) and seen[message + 1]
        talk.call(tokens(rng, _REPLY), pause, after=after, spawn=(_perceives(name, message + 1),) if next_sees else ())
    # The first perception starts by the clock like the conversation itself, the others are spawned by it.
    yield perceptions[0]
    yield talk.session(start_s)
    yield from perceptions[1:]


def _perceives(name: str, message: int) -> str:
    return f"{name}.{message}"


def _perception(rng: Random, name: str, *, start_s: float | None, pause: Pause) -> Session:
    talk = Talk(name, workload="multimodal", prefix="multimodal_vision", leads=PREFIXES["multimodal_vision"])
    images = _images(rng, talk)
    talk.put(
        *images, Segment(role="user", tokens=tokens(rng, _PROMPT), key=talk.key(), plant="Which digits does the first image show?", at=1.0)
    )
    talk.call(
        tokens(rng, _DESCRIPTION),
        pause,
        event="perception",
        model="vision",
        deadline_s=_PERCEPTION_DEADLINE_S,
        check=(Has(text=digits(images[0].key)),),
    )
    return talk.session(start_s)


def _images(rng: Random, talk: Talk) -> tuple[Segment, ...]:
    sizes = [sized(tokens(rng, _IMAGE), aspect=_ASPECT(rng.random())) for _ in range(_IMAGES.pick(rng) + 1)]
    return tuple(Segment(role="image", tokens=image_tokens(size), key=talk.key(), size=size) for size in sizes)


def _inline(rng: Random, name: str, start_s: float, seen: list[bool]) -> Iterator[Session]:
    talk = Talk(name, workload="multimodal", prefix="multimodal", leads=PREFIXES["multimodal"])
    shown: list[tuple[Segment, ...]] = []
    for message, has_images in enumerate(seen):
        if message >= _INLINE_TURNS and shown[message - _INLINE_TURNS]:
            _forget(talk, shown[message - _INLINE_TURNS])
        shown.append(_images(rng, talk) if has_images else ())
        talk.put(*shown[-1])
        talk.add("user", _ENVELOPE + tokens(rng, _USER))
        talk.call(tokens(rng, _REPLY), Pause("user", seconds(rng, PI_USER)) if message else NO_PAUSE)
    yield talk.session(start_s)


def _forget(talk: Talk, images: tuple[Segment, ...]) -> None:
    """Replace the images of an earlier message with one marker."""
    first = talk.context.index(images[0])
    talk.reset(first, Segment(role="user", tokens=_MARKER, key="multimodal.marker"), *talk.rest(first + len(images)))
