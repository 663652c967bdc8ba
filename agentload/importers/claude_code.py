"""Claude Code's sessions: ~/.claude/projects/*/*.jsonl, with the sub-agents in SESSION/subagents/, beside them, or inside (isSidechain).

A call is written as several lines with one message.id and requestId: they are one call, with the largest usage of them; sessions that
were resumed repeat earlier calls in a new file: these are counted once. Its prompt is input + cache_read + cache_creation. Often
the log has only the output tokens of the stream's start (2, say): then the length of the answer stands in. A call was sent when
the last thing that it answers was written, for the log does not say. Results of parallel tools are siblings in the log's tree and
follow each other here. The system prompt and tools are what the first prompt has more than its messages, taken to be one for a
project and version, or a kind of sub-agent.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from agentload.importers.parts import families, stamps
from agentload.importers.parts.claude_lines import Record, by_agent, entries, known
from agentload.importers.parts.families import Transcript
from agentload.importers.parts.files import parsed, records
from agentload.importers.parts.intake import Head, Intake
from agentload.model.trace import Session

FILES: Final = ("*.jsonl",)
LICENCE: Final = None


def sniff(head: Head) -> float:
    """Look for lines of the log: linked by parentUuid, or the titles that may stand first."""
    if any("sessionId" in record and ("parentUuid" in record or "uuid" in record) for record in head.records):
        return 0.95
    return 0.6 if head.has("summary", "leafUuid") or head.record.get("type") == "file-history-snapshot" else 0.0


def sessions(intake: Intake) -> Iterator[Session]:
    """Yield a session for each file with a call, and one for each sub-agent."""
    seen: set[int] = set()
    return families.sessions(
        intake, [one for path in intake.files if path.name != "journal.jsonl" for one in _transcripts(intake, path, seen)]
    )


def _transcripts(intake: Intake, path: Path, seen: set[int]) -> Iterator[Transcript]:
    """Return what a file holds: a session or a sub-agent, and the sub-agents inside it, found by a first look at its links alone."""
    agents: dict[str, tuple[float, str]] = {}
    for agent, _, record in by_agent(known(intake, records(path, Record, intake.notes))):
        at_s = stamps.seconds(record.get("timestamp"))
        if agent not in agents and at_s is not None:
            agents[agent] = (at_s, f"{record.get('cwd')} {record.get('version')}")
    is_own = len(agents) == 1 and "" not in agents
    for agent, (began_s, lead) in agents.items():
        yield Transcript(
            read=partial(entries, intake, path, agent, seen),
            key=agent or path.stem,
            workload="claude_code-subagent" if agent else "claude_code",
            began_s=began_s,
            lead=f"claude_code agent {_kind(path)}" if agent else f"claude_code {lead}",
            spawned_by=(_parent(path) if is_own else path.stem) if agent else None,
        )


def _parent(path: Path) -> str | None:
    """Return the session of a sub-agent's own file."""
    if "subagents" in path.parts:
        return path.parts[path.parts.index("subagents") - 1]
    return Head(path).record.get("sessionId")


def _kind(path: Path) -> str:
    beside = path.with_name(f"{path.stem}.meta.json")
    said = parsed(beside.read_bytes()) if beside.exists() else None
    return str(said.get("agentType")) if isinstance(said, dict) else ""
