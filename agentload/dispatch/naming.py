"""Names that are equal for an equal run and unique otherwise."""

import hashlib

from agentload.model.plan import Play

SALT_TOKENS = 8  # a salt replaces this many tokens at the head of a context


def request_id(run: str, play: Play, session: str, turn: int, attempt: int) -> str:
    """Name an attempt, unique within and across runs."""
    return named(run, str(play.pair), play.salt, play.arm, session, str(turn), str(attempt))


def named(*identity: str) -> str:
    """Return a name in the form of a UUID: llama-cpp-python's
    server refuses every request with another X-Request-Id.
    """
    return hashlib.blake2b("\x1f".join(identity).encode(), digest_size=16).hexdigest()
