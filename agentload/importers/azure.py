"""Azure LLM inference traces: one request a row, with its
time and lengths (2023, 2024, and LMM 2025 with image counts).

TIMESTAMP,ContextTokens,GeneratedTokens, or TIMESTAMP,NumImages,ContextTokens,GeneratedTokens.
Contents have no identity in these traces, so nothing is shared between requests; system=N
says that the first N tokens of every prompt are the same system prompt.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from agentload.importers.parts import (
    ContextPiece,
    Head,
    Intake,
    SizedCall,
    chat,
    fields,
    requests,
    rows,
)
from agentload.model.trace import image_tokens
from agentload.plugins import Count

FILES: Final = ("*.csv",)
LICENCE: Final = (
    "Azure's public traces are CC-BY 4.0 (Azure/AzurePublicDataset): attribute them and cite "
    "the papers named on their pages"
)
_IMAGE: Final = (448, 448)  # judgement: the trace has counts but no sizes of images


class _Row(msgspec.Struct):
    stamp: str = msgspec.field(name="TIMESTAMP")
    prompt: Count = msgspec.field(name="ContextTokens")
    output: Count = msgspec.field(name="GeneratedTokens")
    images: Count = msgspec.field(name="NumImages", default=0)


def sniff(head: Head) -> float:
    """Look for the three columns."""
    return 1.0 if head.has_columns("timestamp", "contexttokens", "generatedtokens") else 0.0


@requests.reader(requests.sessions, workload="azure")
def sessions(intake: Intake, *, system: Count = 0) -> Iterator[SizedCall]:
    """Yield a session for each row."""
    pixels = image_tokens(_IMAGE)
    for number, (place, row) in enumerate(
        pair for path in intake.files for pair in rows(path, _Row, intake.notes)
    ):
        at_s = fields.iso(row.stamp)
        if at_s is None:
            intake.notes.skip(place, "TIMESTAMP is not a date and time")
            continue
        if row.images:
            intake.notes.estimate("size of an image: 448 x 448", row.images)
        images = [
            ContextPiece(role="image", tokens=pixels, key=f"{number}.i{image}", pixels=_IMAGE)
            for image in range(row.images)
        ]
        pieces = [*requests.leading(system, row.prompt), *images]
        yield SizedCall(
            session=place,
            at_s=at_s,
            place=place,
            prompt=max(row.prompt, chat.total(pieces) + 1),
            output=row.output,
            pieces=pieces,
        )
