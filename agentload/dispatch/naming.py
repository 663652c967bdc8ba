"""Make names that are the same for the same run and unique otherwise."""

import hashlib

from agentload.model.plan import Play

SALT_TOKENS = 8  # a salt replaces this many tokens at the head of a context


def request_id(run: str, play: Play, session: str, turn: int, attempt: int) -> str:
    """Return the name of an attempt, unique within and across runs."""
    return hex_name(run, str(play.pair), play.salt, play.arm, session, str(turn), str(attempt))


def hex_name(*identity: str) -> str:
    """Return a name of 32 hex digits, which reads as a UUID.

    The server of llama-cpp-python refuses requests whose X-Request-Id has any other form.
    """
    return hashlib.blake2b("\x1f".join(identity).encode(), digest_size=16).hexdigest()
