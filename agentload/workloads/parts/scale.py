"""Scale every length of a session, so that a workload fits a smaller (or fills a larger) window and keeps its shape."""

import math
from dataclasses import replace

from agentload.model.trace import Segment, Session, Turn, image_tokens


def scaled_session(session: Session, factor: float) -> Session:
    """Return the session with all its lengths multiplied; waits stay as they are."""
    return replace(session, turns=tuple(_turn(turn, factor) for turn in session.turns))


def scaled_segment(segment: Segment, factor: float) -> Segment:
    """Return the segment with its length multiplied; an image's sides shrink so that its patches do."""
    if segment.size is None:
        return replace(segment, tokens=_length(segment.tokens, factor))
    width, height = (max(1, round(side * math.sqrt(factor))) for side in segment.size)
    return replace(segment, size=(width, height), tokens=image_tokens((width, height)))


def _turn(turn: Turn, factor: float) -> Turn:
    return replace(
        turn,
        add=tuple(scaled_segment(segment, factor) for segment in turn.add),
        output=_length(turn.output, factor),
        thinking=None if turn.thinking is None else _length(turn.thinking, factor),
    )


def _length(tokens: int, factor: float) -> int:
    return max(1, round(tokens * factor)) if tokens else 0
