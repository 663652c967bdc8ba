"""Take out of a run's rows what says whose they are; figures and verdicts stay as they were.

Machines, addresses, absolute folders and sessions get made-up names, the same for the same thing
everywhere in one run. Answers, error texts and header values of gateways are left out. Names
that the user chose (of arms, runs, traces, models, tasks) stay: a report is about them. In JSON
only values are changed, never names of fields.
"""

import json
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import structs

from agentload.model.rows import AnswerRow, ArmRow, BlockRow, CallRow, LegRow, Row

SHORTEST: Final = 3
"""Fewest characters of a name that is replaced inside a text: shorter ones occur in words."""
NOWHERE: Final = "virtual"
"""Host of a simulation's parts."""
OURS: Final = frozenset({"agentload", "localhost"})
"""Names of machines that say nothing, and occur in commands."""
TEXTS: Final = (
    *("command", "options", "study", "health", "url", "model", "expected", "facts", "void"),
    *("labels", "signals", "decision", "headline", "settings", "detail"),
)
"""Fields of rows that hold texts or JSON with names of machines; no other field is changed."""
URL: Final = re.compile(
    r"(?P<scheme>https?://)(?:[^\s/@\"']*@)?(?P<place>[^\s/\"'?#,@]+)(?P<path>[^\s\"'?#,]*)"
    r"(?:\?[^\s\"',]*)?"
)
HOME: Final = re.compile(r"(?:/home/|/Users/)[\w.@+-]+/?(?=[\s\"',]|$)")
FOLDER: Final = re.compile(
    r"(?:file://|(?<![\w:/.]))(?:~[\w.-]*|\.\.)?(?:/[\w.@+~-]+)*/(?=[\w.@+~-])"
)
"""The folders of an absolute path, up to its last name."""


@dataclass(slots=True)
class Redaction:
    """Made-up names for one run: `learn` its rows first, then call it with each."""

    known: dict[str, str] = field(default_factory=dict)
    """Made-up name of each machine and address, in lower case."""
    sessions: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    key: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    """Nobody keeps it: digests of prompts stay equal or unequal, and cannot be looked up."""
    _inside: re.Pattern[str] | None = None
    """Finds known names inside a text."""

    def learn(self, rows: Iterable[Row], sessions: Collection[str]) -> None:
        """Give names to the machines and addresses of a run's parts, arms and blocks.

        *sessions* are sorted, and so are their new names: rows are sorted by them.
        """
        width = len(str(len(sessions)))
        for number, name in enumerate(sessions, 1):
            self.sessions[name] = f"session-{number:0{width}}"
        kept = set(OURS)
        for row in rows:
            match row:
                case LegRow() if row.host != NOWHERE:
                    self._name("client", row.host)
                    self._name("boot", row.boot_id or "")
                case ArmRow():
                    kept.add(row.arm.lower())
                    self._name("machine", row.machine or "")
                    self._server(urlsplit(row.url or "").netloc)
                case BlockRow():
                    self._name("machine", row.machine or "")
                case _:
                    pass
        # The longest first: one name may be the beginning of another.
        inside = sorted(self.known.keys() - kept, key=len, reverse=True)
        names = "|".join(re.escape(name) for name in inside if len(name) >= SHORTEST)
        self._inside = re.compile(rf"(?<!\w)(?:{names})(?!\w)", re.IGNORECASE) if names else None

    def __call__(self, row: Row) -> Row:
        """Return the row without what says whose it is."""
        match row:
            case CallRow():
                return self._call(row)
            case AnswerRow():
                session, mark, turn = row.item.partition("[")
                item = f"{self.sessions.get(session, session)}{mark}{turn}"
                return replace(row, answer=None, item=item, **self._texts(row))
            case LegRow() if row.host != NOWHERE:
                boot = row.boot_id and self._name("boot", row.boot_id)
                host = self._name("client", row.host)
                return replace(row, host=host, boot_id=boot, **self._texts(row))
            case ArmRow() | BlockRow():
                machine = row.machine and self._name("machine", row.machine)
                return replace(row, machine=machine, **self._texts(row))
            case _:
                return replace(row, **self._texts(row))

    def _call(self, row: CallRow) -> CallRow:
        return structs.replace(
            row,
            session=self.sessions[row.session],
            replica=row.replica and self._server(row.replica),
            gateway=None,
            error=None,
            prompt_hash=row.prompt_hash and self._digest(row.prompt_hash),
        )

    def _digest(self, digest: str) -> str:
        return blake2b(digest.encode(), key=self.key, digest_size=16).hexdigest()

    def _texts(self, row: Row) -> Mapping[str, Any]:
        """Return the row's texts, changed."""
        found = {name: getattr(row, name, None) for name in TEXTS}
        return {name: self.text(value) for name, value in found.items() if isinstance(value, str)}

    def text(self, text: str) -> str:
        """Return a text, or JSON, with made-up names in place of private ones."""
        if text[:1] not in ("{", "["):
            return self._plain(text)
        try:
            value = json.loads(text)
        except ValueError:
            return self._plain(text)
        return json.dumps(self._value(value), ensure_ascii=False)

    def _value(self, value: object) -> object:
        match value:
            case str():
                return self._plain(value)
            case list():
                return [self._value(each) for each in value]
            case dict():
                return {name: self._value(each) for name, each in value.items()}
            case _:
                return value

    def _plain(self, text: str) -> str:
        text = URL.sub(self._url, text)
        text = FOLDER.sub("", HOME.sub("", text))
        if self._inside is None:
            return text
        return self._inside.sub(lambda found: self.known[found.group().lower()], text)

    def _url(self, found: re.Match[str]) -> str:
        return f"{found['scheme']}{self._server(found['place'])}{found['path']}"

    def _server(self, place: str) -> str:
        """Return the made-up name of an address; its host alone has the same."""
        name = self._name("server", place)
        host = urlsplit(f"//{place}").hostname
        if host:
            self.known.setdefault(host.lower(), name)
        return name

    def _name(self, kind: str, name: str) -> str:
        """Return the made-up name of a private one; an empty name and a made-up one stay."""
        if not name or name in self.known.values():
            return name
        made = self.known.get(name.lower())
        if made is None:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            made = self.known[name.lower()] = f"{kind}-{self.counts[kind]}"
        return made
