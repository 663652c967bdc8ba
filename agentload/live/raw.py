"""Keep the bytes that servers sent, for users who must see them.

The file has one JSON line a call, compressed. A line holds the bytes as text in Latin-1 (a
character a byte), and for each read its instant and its length. Cookies, and keys that a server
echoes, are overwritten with as many `*`, so that the lengths of the reads still fit.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

import msgspec
import zstandard

from agentload.errors import StoreError
from agentload.live.target import Target
from agentload.model.commands import Outcome

Which: TypeAlias = Literal["failures", "all"]
Reads: TypeAlias = Sequence[tuple[int, bytes]]

MOST_OF_A_CALL: Final = 4 << 20
MOST_OF_A_FILE: Final = 1 << 30  # before compression, which leaves a tenth or less
LEVEL: Final = 1
# between two chunks (RFC 9112, section 7.1)
_PARTING: Final = rb"\r\n[0-9A-Fa-f]{1,16}[^\r\n]{0,64}\r\n"
_PARTED: Final = re.compile(_PARTING)
_COOKIE: Final = re.compile(rb"(?im)^(set-cookie:[^=;\r\n]*=)([^;\r\n]*)")


class RawLog:
    """Append the bytes of calls to one file; use as a context manager."""

    def __init__(self, path: Path, *, which: Which) -> None:
        self.path = path
        self._which = which
        self._file = path.open("ab", buffering=0)
        self._left = MOST_OF_A_FILE
        self._pack = zstandard.ZstdCompressor(level=LEVEL).compress
        self._json = msgspec.json.Encoder().encode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def keep(
        self,
        target: Target,
        request_id: str,
        outcome: Outcome,
        reads: Reads,
        *,
        also: Iterable[str] = (),
    ) -> None:
        """Keep a call that is over, if it is wanted and the file has room left.

        *also* are secrets in addition to those of the target.
        """
        if (self._which == "failures" and outcome.status == "ok") or self._left <= 0:
            return
        secrets = [secret.encode() for secret in (*target.secrets(), *also)]
        raw = mask(b"".join(data for _, data in reads), secrets)[:MOST_OF_A_CALL]
        line = {
            "request_id": request_id,
            "arm": target.arm,
            "status": outcome.status,
            "reads": [(at_ns, len(data)) for at_ns, data in reads],
            "raw": raw.decode("latin-1"),
        }
        encoded = self._json(line) + b"\n"
        self._left -= len(encoded)
        # One zstd frame a call: what was kept before a crash can be read,
        # and any number of frames is one stream.
        try:
            self._file.write(self._pack(encoded))
        except OSError as error:
            raise StoreError(
                f"{self.path}: {error.strerror}",
                hint="free some disk space, or go on without --keep-raw",
            ) from error


def mask(raw: bytes, secrets: Iterable[bytes]) -> bytes:
    """Overwrite the values of cookies, and secrets even where they span several chunks."""
    if b"set-cookie:" in raw.lower():
        raw = _COOKIE.sub(lambda found: found[1] + b"*" * len(found[2]), raw)
    joined = _PARTED.sub(b"", raw)
    for secret in secrets:
        if secret in joined:
            parted = re.compile(
                (b"(?:" + _PARTING + b")?").join(re.escape(bytes([each])) for each in secret)
            )
            raw = parted.sub(lambda found: _overwritten(found[0]), raw)
    return raw


def _overwritten(found: bytes) -> bytes:
    pieces = _PARTED.split(found)
    partings = [*_PARTED.findall(found), b""]
    return b"".join(
        b"*" * len(piece) + parting for piece, parting in zip(pieces, partings, strict=True)
    )
