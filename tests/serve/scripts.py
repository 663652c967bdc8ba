"""Scripts that are nothing but text."""

from agentload.serve.script import Finish, Script, ScriptPart


def plain(pieces: tuple[str, ...], *, finish: Finish) -> Script:
    return Script(parts=(ScriptPart(kind="content", pieces=pieces),), finish=finish)
