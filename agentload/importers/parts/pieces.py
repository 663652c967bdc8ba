"""A piece of a recorded context: what a message was, by length and identity alone."""

from collections.abc import Sequence

import msgspec

from agentload.model.trace import Role, Segment


class Piece(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A message, or an image in it; `tokens` is an estimate until a server's count corrects it."""

    role: Role
    tokens: int
    key: str
    size: tuple[int, int] | None = None
    tool: str | None = None
    """Name of the tool whose result it is."""

    def segment(self) -> Segment:
        """Return it as a segment."""
        extra = () if self.tool is None else (("name", msgspec.json.encode(self.tool).decode()),)
        return Segment(role=self.role, tokens=self.tokens, key=self.key, size=self.size, extra=extra)


def shared(before: Sequence[Piece], now: Sequence[Piece]) -> int:
    """Count the leading pieces that two contexts have in common, by identity."""
    count = 0
    for left, right in zip(before, now, strict=False):
        if left.key != right.key or left.role != right.role:
            break
        count += 1
    return count


def identical(before: Sequence[Piece], now: Sequence[Piece]) -> int:
    """Count the leading pieces that two contexts have in common, lengths included."""
    count = 0
    for left, right in zip(before, now, strict=False):
        if left != right:
            break
        count += 1
    return count


def apportioned(weights: Sequence[int], total: int) -> list[int]:
    """Share a total out by weight; each gets at least 1 where that is possible, and the sum is the total."""
    if not weights:
        return []
    if not sum(weights):
        weights = [1] * len(weights)
    whole = sum(weights)
    shares = [total * weight // whole for weight in weights]
    by_rest = sorted(range(len(weights)), key=lambda index: (-(total * weights[index] % whole), index))
    for index in by_rest[: total - sum(shares)]:
        shares[index] += 1
    if total >= len(weights):
        for index, share in enumerate(shares):
            if share == 0:
                largest = max(range(len(shares)), key=shares.__getitem__)
                shares[largest] -= 1
                shares[index] = 1
    return shares
