"""Text and images of a few clients: short answers about an image, and agents that look at several.

Each client has its own instructions, which all its calls share, and its own sizes;
few clients make most calls. With `handoff=text` the images are those of an agent's
conversation instead: a perception call to the model `vision` describes them, and
its answer is passed as text to the waiting call of the agent (a live edge). With
`handoff=inline` the agent's model gets the images itself; three messages later each
is replaced by a marker, which makes everything after it new to the prefix cache.
"""

from collections.abc import Iterator
from random import Random
from typing import Final, Literal

from agentload.model.check import Has
from agentload.model.trace import Segment, Session, TurnRef, image_tokens
from agentload.plugins import Share
from agentload.prompts.images import digits, image_size
from agentload.workloads.parts.clients import CLIENTS
from agentload.workloads.parts.draws import (
    Distribution,
    WeightedChoice,
    geometric,
    happens,
    lognormal,
    quantiles,
    seconds,
    tokens,
    uniform,
)
from agentload.workloads.parts.talk import NO_PAUSE, Pause, Talk, prompt_prefix
from agentload.workloads.parts.targets import QuantileTarget
from agentload.workloads.parts.times import OPENCLAW_TOOL, PI_USER, ArrivalProcess

_ASPECT: Final = uniform(0.75, 1.5)  # width over height: judgement
_QUESTION: Final = "Which digits does the first image show?"
_WORDS: Final = 12

_CLIENT: Final = WeightedChoice(tuple(client.share for client in CLIENTS.values()))
_STEPS: Final = geometric(
    0.15, low=0
)  # of an agent, after its first call: judgement; what a tool says is as long as in chat
_RESULT: Final = lognormal(150, 1.6, 1, 4_000)

# What OpenClaw's conversations hand over: ServeGen's
# images, as above and whole, answers cut at 500 characters.
_IMAGE: Final = quantiles(
    (0, 4),
    (0.10, 6),
    (0.25, 252),
    (0.50, 841),
    (0.75, 1_196),
    (0.90, 1_224),
    (0.95, 1_232),
    (0.99, 1_265),
    (1, 1_300),
)
_IMAGES: Final = quantiles((0, 0.6), (0.85, 1.4), (0.97, 3), (1, 8))
_PROMPT: Final = uniform(40, 106)
_DESCRIPTION: Final = lognormal(87, 0.8, 4, 125)

_USER: Final = lognormal(
    20, 1.1, 3, 2_000
)  # pi sessions (badlogic/pi-mono), and OpenClaw's envelope
_ENVELOPE: Final = 60
_REPLY: Final = lognormal(350, 0.45)  # as in chat
_MESSAGES: Final = geometric(3, low=1)  # judgement
_PERCEPTION_DEADLINE_S: Final = 60.0  # OpenClaw docs/nodes/media-understanding.md
# `[image data removed - already processed by model]`, after three turns (docs/nodes/images.md)
_MARKER: Final = 12
_INLINE_TURNS: Final = 3


PREFIXES: Final = {
    "multimodal": prompt_prefix("multimodal", system=7_200, tools=8_800),
    "multimodal_vision": prompt_prefix("multimodal_vision", system=30, tools=0),  # judgement
    **{
        f"multimodal_{name}": prompt_prefix(
            f"multimodal_{name}", system=client.system, tools=client.tools
        )
        for name, client in CLIENTS.items()
    },
}
REAL: Final = "ServeGen mm-image (alibaba): single calls of 35 clients without sessions or contents"
UNSAID: Final = (
    "turns, tools and waits, what of a prompt is shared, in which order texts and images come"
)
TARGETS: Final = {
    "context": QuantileTarget(1_310, 2_850, 7_200),
    "output": QuantileTarget(97, 275, 625),
    "images": QuantileTarget(1, 3, 9),
}


def generate(
    rng: Random,
    *,
    arrivals: ArrivalProcess = ArrivalProcess(sessions=200, rate_per_s=0.1),
    image_share: Share = 0.6,
    handoff: Literal["none", "text", "inline"] = "none",
) -> Iterator[Session]:
    """Yield `sessions` sessions; with a `handoff`, conversations
    whose first message and a share of the others have images.
    """
    # Clients of the same ServeGen trace: CV q50 1.0, q75 4.0.
    converse = _family_of_perceptions if handoff == "text" else _inline
    for number, start_s in enumerate(arrivals.draw(rng)):
        if handoff == "none":
            yield _client_session(rng, f"multimodal-{number}", start_s)
            continue
        seen = [
            True,
            *(happens(rng, image_share) for _ in range(round(_MESSAGES(rng.random())) - 1)),
        ]
        yield from converse(rng, f"multimodal-{number}", start_s, seen)


def _client_session(rng: Random, name: str, start_s: float) -> Session:
    """Return the session of a drawn client: a question about images, then calls of its tools."""
    kind = list(CLIENTS)[_CLIENT.pick(rng)]
    client = CLIENTS[kind]
    talk = Talk(
        name,
        workload="multimodal",
        prefix=f"multimodal_{kind}",
        leads=PREFIXES[f"multimodal_{kind}"],
    )
    images = _images(rng, talk, tokens(rng, client.images), client.image)
    talk.put(
        *images,
        Segment(
            role="user",
            tokens=max(_WORDS, tokens(rng, client.text)),
            key=talk.key(),
            plant=_QUESTION,
            at=1.0,
        ),
    )
    talk.call(tokens(rng, client.answer), check=(Has(text=digits(images[0].key)),))
    for _ in range(round(_STEPS(rng.random())) if client.tools else 0):
        talk.add("tool", tokens(rng, _RESULT))
        talk.call(tokens(rng, client.answer), Pause("tool", seconds(rng, OPENCLAW_TOOL)))
    return talk.session(start_s)


def _family_of_perceptions(
    rng: Random, name: str, start_s: float, seen: list[bool]
) -> Iterator[Session]:
    talk = Talk(name, workload="multimodal", prefix="multimodal", leads=PREFIXES["multimodal"])
    perceptions = []
    for message, has_images in enumerate(seen):
        pause = Pause("user", seconds(rng, PI_USER)) if message else NO_PAUSE
        talk.add("user", _ENVELOPE + tokens(rng, _USER))
        after: tuple[TurnRef, ...] = ()
        if has_images:
            perception = _perception(
                rng, _perceives(name, message), start_s=None if message else start_s, pause=pause
            )
            perceptions.append(perception)
            # The user's pause comes before the perception; the agent continues when that is done.
            after = (TurnRef(session=perception.session, turn=-1),)
            pause = NO_PAUSE
            talk.put(
                Segment(
                    role="user",
                    tokens=perception.turns[-1].output,
                    key=f"{perception.session}.text",
                    source=after[0],
                )
            )
        next_sees = message + 1 < len(seen) and seen[message + 1]
        talk.call(
            tokens(rng, _REPLY),
            pause,
            after=after,
            spawn=(_perceives(name, message + 1),) if next_sees else (),
        )
    # The first perception starts by the clock like the
    # conversation itself, the others are spawned by it.
    yield perceptions[0]
    yield talk.session(start_s)
    yield from perceptions[1:]


def _perceives(name: str, message: int) -> str:
    return f"{name}.{message}"


def _perception(rng: Random, name: str, *, start_s: float | None, pause: Pause) -> Session:
    talk = Talk(
        name, workload="multimodal", prefix="multimodal_vision", leads=PREFIXES["multimodal_vision"]
    )
    images = _images(rng, talk, tokens(rng, _IMAGES), _IMAGE)
    talk.put(
        *images,
        Segment(role="user", tokens=tokens(rng, _PROMPT), key=talk.key(), plant=_QUESTION, at=1.0),
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


def _images(rng: Random, talk: Talk, count: int, image: Distribution) -> tuple[Segment, ...]:
    sizes = [image_size(tokens(rng, image), aspect=_ASPECT(rng.random())) for _ in range(count)]
    return tuple(
        Segment(role="image", tokens=image_tokens(size), key=talk.key(), pixels=size)
        for size in sizes
    )


def _inline(rng: Random, name: str, start_s: float, seen: list[bool]) -> Iterator[Session]:
    talk = Talk(name, workload="multimodal", prefix="multimodal", leads=PREFIXES["multimodal"])
    shown: list[tuple[Segment, ...]] = []
    for message, has_images in enumerate(seen):
        if message >= _INLINE_TURNS and shown[message - _INLINE_TURNS]:
            _forget(talk, shown[message - _INLINE_TURNS])
        shown.append(_images(rng, talk, tokens(rng, _IMAGES), _IMAGE) if has_images else ())
        talk.put(*shown[-1])
        talk.add("user", _ENVELOPE + tokens(rng, _USER))
        talk.call(
            tokens(rng, _REPLY), Pause("user", seconds(rng, PI_USER)) if message else NO_PAUSE
        )
    yield talk.session(start_s)


def _forget(talk: Talk, images: tuple[Segment, ...]) -> None:
    """Replace the images of an earlier message with one marker."""
    first = talk.context.index(images[0])
    talk.reset(
        first,
        Segment(role="user", tokens=_MARKER, key="multimodal.marker"),
        *talk.rest(first + len(images)),
    )
