"""What a check finds wrong."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Say what is wrong and where; the turn is None where it is the session."""

    session: str
    turn: int | None = None
    what: str

    def __str__(self) -> str:
        place = f"session {self.session}" if self.turn is None else f"session {self.session}, turn {self.turn}"
        return f"{place}: {self.what}"
