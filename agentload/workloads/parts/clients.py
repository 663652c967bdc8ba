"""Describe the clients of an image service, each with its own instructions and sizes."""

from dataclasses import dataclass
from typing import Final

from agentload.workloads.parts.draws import Distribution, quantiles, uniform


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One kind of client: share of the sessions, tokens of instructions and tools, its calls."""

    share: float
    system: int
    text: Distribution
    images: Distribution
    image: Distribution
    answer: Distribution
    tools: int = 0
    """Tokens of tools; only agents have some, and continue with a tool's images."""


# ServeGen mm-image (alibaba/ServeGen, complete): its 35 clients by their tables at
# q10/50/90/99, like ones put together. Most send the same few words every time.
# Which of them are agents is judgement: those with long texts and many small images.
CLIENTS: Final = {
    "agent": Client(
        share=0.29,
        system=400,
        tools=600,
        text=quantiles((0, 20), (0.10, 50), (0.50, 600), (0.90, 1_600), (0.99, 2_200), (1, 2_600)),
        images=quantiles((0, 0.6), (0.40, 1.2), (0.50, 2), (0.90, 4.4), (0.98, 13), (1, 46)),
        image=quantiles((0, 4), (0.10, 6), (0.50, 150), (0.75, 800), (0.90, 1_224), (1, 1_270)),
        answer=quantiles((0, 10), (0.10, 57), (0.50, 195), (0.90, 385), (0.98, 850), (1, 2_000)),
    ),
    "labels": Client(
        share=0.19,
        system=78,
        text=quantiles((0, 12), (0.75, 14), (0.80, 290), (1, 300)),
        images=uniform(1, 1.2),
        image=quantiles((0, 1_190), (0.90, 1_200), (1, 1_240)),
        answer=quantiles(
            (0, 4), (0.10, 6), (0.50, 9), (0.75, 38), (0.90, 75), (0.99, 127), (1, 200)
        ),
    ),
    "forms": Client(
        share=0.14,
        system=67,
        text=quantiles((0, 12), (0.60, 14), (0.70, 395), (1, 400)),
        images=quantiles((0, 0.8), (0.80, 1.4), (0.85, 3), (1, 3.4)),
        image=quantiles((0, 150), (0.10, 198), (0.50, 432), (0.90, 576), (0.99, 1_230), (1, 1_260)),
        answer=quantiles((0, 30), (0.10, 64), (0.50, 139), (0.90, 222), (0.99, 357), (1, 500)),
    ),
    "thumbnails": Client(
        share=0.12,
        system=63,
        text=uniform(12, 15),
        images=uniform(1, 1.2),
        image=quantiles((0, 150), (0.10, 180), (0.50, 252), (0.90, 254), (0.99, 324), (1, 400)),
        answer=quantiles((0, 60), (0.10, 131), (0.50, 184), (0.90, 266), (0.99, 406), (1, 600)),
    ),
    "photos": Client(
        share=0.26,
        system=29,
        text=quantiles((0, 12), (0.60, 14), (0.75, 96), (0.95, 420), (1, 430)),
        images=uniform(1, 1.2),
        image=quantiles((0, 240), (0.10, 660), (0.50, 1_140), (0.90, 1_230), (1, 1_275)),
        answer=quantiles((0, 2), (0.10, 3), (0.50, 38), (0.90, 150), (0.99, 290), (1, 500)),
    ),
}
