"""Azure LLM inference traces: one request a row, with its time and lengths (2023, 2024, and LMM 2025 with image counts).

TIMESTAMP,ContextTokens,GeneratedTokens, or TIMESTAMP,NumImages,ContextTokens,GeneratedTokens. Contents have no identity in these
traces, so nothing is shared between requests; system=N says that the first N tokens of every prompt are the same system prompt.
"""

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from agentload.importers.parts import fields
from agentload.importers.parts.fields import rows
from agentload.importers.parts.intake import Head, Intake
from agentload.importers.parts.order import by_session
from agentload.model.trace import Segment, Session, Turn, image_tokens
from agentload.plugins import Count

FILES: Final = ("*.csv",)
LICENCE: Final = "Azure's public traces are CC-BY 4.0 (Azure/AzurePublicDataset): attribute them and cite the papers named on their pages"
_IMAGE: Final = (448, 448)  # judgement: the trace has counts but no sizes of images


class _Row(msgspec.Struct):
    stamp: str = msgspec.field(name="TIMESTAMP")
    prompt: Annotated[int, Meta(ge=0)] = msgspec.field(name="ContextTokens")
    output: Annotated[int, Meta(ge=0)] = msgspec.field(name="GeneratedTokens")
    images: Annotated[int, Meta(ge=0)] = msgspec.field(name="NumImages", default=0)


class _Request(msgspec.Struct, array_like=True):
    session: str
    at_s: float
    prompt: int
    output: int
    images: int


def sniff(head: Head) -> float:
    """Look for the three columns."""
    first = head.text.partition("\n")[0].lower()
    return 1.0 if all(name in first for name in ("timestamp", "contexttokens", "generatedtokens")) else 0.0


def sessions(intake: Intake, *, system: Count = 0) -> Iterator[Session]:
    """Yield a session for each row."""
    origin_s: float | None = None
    for number, (request,) in enumerate(by_session(_requests(intake), _Request)):
        origin_s = request.at_s if origin_s is None else origin_s
        turn = Turn(add=tuple(_segments(request, f"s{number}", system)), output=request.output)
        yield Session(session=f"s{number}", workload="azure", turns=(turn,), start_s=round(request.at_s - origin_s, 6))


def _requests(intake: Intake) -> Iterator[_Request]:
    for path in intake.files:
        for place, row in rows(path, _Row, intake.notes):
            at_s = fields.iso(row.stamp)
            if at_s is None:
                intake.notes.skip(place, "TIMESTAMP is not a date and time")
                continue
            if row.images:
                intake.notes.estimate("size of an image: 448 x 448", row.images)
            yield _Request(place, at_s, row.prompt, row.output, row.images)


def _segments(request: _Request, name: str, system: int) -> Iterator[Segment]:
    pixels = image_tokens(_IMAGE) * request.images
    shared = min(system, request.prompt)
    if shared:
        yield Segment(role="system", tokens=shared, key="system")
    for number in range(request.images):
        yield Segment(role="image", tokens=image_tokens(_IMAGE), key=f"{name}.i{number}", size=_IMAGE)
    yield Segment(role="user", tokens=max(1, request.prompt - shared - pixels), key=name)
