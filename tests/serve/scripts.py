"""Scripts that are nothing but text."""

from agentload.serve.script import Finish, Part, Script


def plain(pieces: tuple[str, ...], *, finish: Finish) -> Script:
    return Script(parts=(Part(kind="content", pieces=pieces),), finish=finish)
