"""Take out of a run's rows what says whose they are; figures and verdicts stay as they were.

Machines, addresses, folders and sessions get made-up names, the same for the same thing
everywhere in one run. Answers, error texts and header values of gateways are left out. Names
that the user chose (of arms, traces, models, tasks) stay: a report is about them.
"""

import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import structs

from agentload.model.rows import AnswerRow, ArmRow, BlockRow, CallRow, LegRow, Row

SHORTEST: Final = 3
"""Fewest characters of a name that is replaced inside a text: shorter ones occur in words."""
NOWHERE: Final = "virtual"
"""Host of a simulation's parts."""
FOLDER: Final = re.compile(r"(?:(?<![\w:/.])|(?<=\\n))~?(?:/[\w.@+~-]+)+/(?=[\w.@+~-])")
"""The folders of an absolute path, up to its last name; a text in JSON has \\n for a new line."""
ADDRESS: Final = re.compile(r"(?<=://)[\w.:@\[\]%-]+")


@dataclass(slots=True)
class Redaction:
    """Made-up names for one run: `learn` its rows first, then call it with each."""

    known: dict[str, str] = field(default_factory=dict)
    """Made-up name of each machine and address."""
    sessions: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    key: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    """Nobody keeps it: digests of prompts stay equal or unequal, and cannot be looked up."""

    def learn(self, rows: Iterable[Row], sessions: Collection[str]) -> None:
        """Give names to the machines and addresses of a run's parts, arms and blocks.

        *sessions* are sorted, and so are their new names: rows are sorted by them.
        """
        width = len(str(len(sessions)))
        for number, name in enumerate(sessions, 1):
            self.sessions[name] = f"session-{number:0{width}}"
        for row in rows:
            match row:
                case LegRow() if row.host != NOWHERE:
                    self._name("client", row.host)
                    self._name("boot", row.boot_id or "")
                case ArmRow():
                    self._name("machine", row.machine or "")
                    self._name("server", urlsplit(row.url or "").netloc)
                case BlockRow():
                    self._name("machine", row.machine or "")
                case _:
                    pass

    def __call__(self, row: Row) -> Row:
        """Return the row without what says whose it is."""
        match row:
            case CallRow():
                return self._call(row)
            case AnswerRow():
                return replace(row, answer=None)
            case _:
                return replace(row, **self._texts(row))

    def _call(self, row: CallRow) -> CallRow:
        return structs.replace(
            row,
            session=self.sessions[row.session],
            replica=row.replica and self._name("server", row.replica),
            gateway=None,
            error=None,
            prompt_hash=row.prompt_hash and self._digest(row.prompt_hash),
        )

    def _digest(self, digest: str) -> str:
        return blake2b(digest.encode(), key=self.key, digest_size=16).hexdigest()

    def _texts(self, row: Row) -> Mapping[str, Any]:
        """Return the row's changed texts; the names of runs, arms and rows are kept."""
        changed = {}
        for each in fields(row):
            value = getattr(row, each.name)
            if isinstance(value, str) and (text := self.text(value)) != value:
                changed[each.name] = text
        return changed

    def text(self, text: str) -> str:
        """Return a text (JSON among them) with made-up names in place of private ones."""
        if text in self.known:
            return self.known[text]
        text = ADDRESS.sub(lambda found: self._name("server", found.group()), text)
        text = FOLDER.sub("", text)
        # The longest first: one name may be the beginning of another.
        for name in sorted(self.known, key=len, reverse=True):
            if len(name) >= SHORTEST:
                text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", self.known[name], text)
        return text

    def _name(self, kind: str, name: str) -> str:
        """Return the made-up name of a private one; an empty name and a made-up one stay."""
        if not name or name in self.known.values():
            return name
        if name not in self.known:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.known[name] = f"{kind}-{self.counts[kind]}"
        return self.known[name]
