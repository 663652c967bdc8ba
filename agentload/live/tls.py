"""Speak TLS over a stamped socket: the kernel stamps the records, OpenSSL works in memory."""

import functools
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from agentload.errors import EndpointError
from agentload.live.channel import READ_BYTES, Channel, Read, SocketSource


def context(
    *,
    authority: str | Path | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    verify: bool = True,
) -> ssl.SSLContext:
    """Return the TLS context for an own authority, a client certificate and its key."""
    return _context(authority, certificate, key, verify)


@functools.cache
def _context(
    authority: str | Path | None,
    certificate: str | Path | None,
    key: str | Path | None,
    verify: bool,  # noqa: FBT001 (cached by position)
) -> ssl.SSLContext:
    try:
        made = ssl.create_default_context(cafile=authority)
        if certificate is not None:
            made.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(file) for file in (authority, certificate, key) if file is not None)
        raise EndpointError(
            f"the TLS files {files} cannot be used: {error}",
            hint="give PEM files that this user may read",
        ) from error
    made.set_alpn_protocols(["http/1.1"])
    if not verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made


class TlsChannel:
    """Speak TLS through a channel; a read has the stamp of the record that completed it."""

    is_encrypted: Final = True

    def __init__(self, channel: Channel, trusted: ssl.SSLContext, *, host: str) -> None:
        self.file = channel.file
        self.peer = channel.peer
        self._channel = channel
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = trusted.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    @property
    def is_stamped(self) -> bool:
        """Whether the kernel stamps this connection."""
        return self._channel.is_stamped

    @property
    def unstamped_reads(self) -> int:
        """How many reads the kernel gave no stamp."""
        return self._channel.unstamped_reads

    @property
    def is_sent_stamped(self) -> bool:
        """Whether the kernel stamped the last byte written so far."""
        return self._channel.is_sent_stamped

    async def handshake(self) -> None:
        """Agree on keys; raise `ssl.SSLError` if the server is not the expected one."""
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._flush()
                await self._pull()
            finally:
                self._flush()  # after a failure this sends the alert that tells the server why

    def read_through(self, source: SocketSource | None) -> None:
        """Decrypt what *source* has read from now on; None: read the socket."""
        self._channel.read_through(source)

    def receive(self) -> Iterator[Read]:
        """Return what has come, decrypted; raise an error where it comes among the bytes."""
        for at_ns, data in self._channel.receive():
            if not data:
                yield at_ns, data
                continue
            self._incoming.write(data)
            plain = self._decrypted()
            if self._outgoing.pending:  # the answer to a key update
                self._flush()
            if plain is not None:
                yield at_ns, plain

    def write(self, parts: Iterable[bytes]) -> None:
        """Send all parts, as fast as the kernel takes them."""
        self._tls.write(b"".join(parts))  # a record for each part would take more bytes and time
        self._flush()

    def sent_ns(self) -> int | None:
        """Return when the last byte written so far had left; None while bytes are unsent."""
        return self._channel.sent_ns()

    def close(self) -> None:
        """Close the connection, even in the middle of an answer."""
        self._channel.close()

    def _decrypted(self) -> bytes | None:
        pieces: list[bytes] = []
        while True:
            try:
                piece = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                return b"".join(pieces) if pieces else None
            except ssl.SSLZeroReturnError:
                piece = b""
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)

    async def _pull(self) -> None:
        while not (received := self._channel.receive()):
            await self._channel.readable()
        for _, data in received:
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._channel.write([self._outgoing.read()])
