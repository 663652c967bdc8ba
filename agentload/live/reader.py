"""Read sockets, and send what is known ahead, in a thread that needs no interpreter.

`speedups/reader.c` is the thread. While Python is busy, or another thread of it holds the
interpreter, the thread takes bytes off the sockets with the kernel's stamps, so no two chunks
share a stamp because Python was late. Python is woken for what cannot wait and for many reads at
once; what the bytes mean is decided by the same code on both paths. A request whose instant is
known ahead is handed over too, and leaves in time whatever Python does then. Without the library,
which `agentload-speedups` installs, all is done by `hub`.

Functions of the library take a few µs, and are called without giving the interpreter away:
to get it back might take longer.
"""

import asyncio
import ctypes
import errno
import functools
import os
import weakref
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Final

from agentload.compiled import PURE
from agentload.live.hub import Hub, ReadPath, Watcher

NAME: Final = "agentload_reader"
VERSION: Final = 4
"""The version of the library's functions that are called here."""
OTHER_VERSION: Final = "agentload-speedups was made for another version"
# A call whose instant is known is handed over so long before it: as long as Python may be busy
# with something else, and then some to render, to connect and to hand over.
LEAD_NS: Final = 50_000_000
# Longest time in one turn of the loop, but for what one stream takes: a call that becomes due
# meanwhile is late by as much.
HOLD_S: Final = 0.002
# As in the library: most bytes and most reads that are handed over, and the numbers of them.
BYTES: Final = 48 << 10
READS: Final = 4096
HEADER: Final = 7
PER_READ: Final = 3


class SocketStream:
    """Hand over what the thread reads from one socket."""

    def __init__(
        self, reader: "SocketReader", handle: int, callback: Callable[[], None], *, writes: bool
    ) -> None:
        self.handle: int | None = handle
        """Names the stream to the library; None once it is left."""
        self.writes = writes
        """Whether the thread writes the request as well."""
        self.callback = callback
        self.is_urgent = False
        """Whether what was taken last must not wait."""
        self.sent: tuple[int, int, int] | None = None
        """The send stamp that came with it, if any."""
        self.written = 0, 0, 0
        """When the thread began to write, when it was done (0: not since), and the bytes since."""
        self._reader = reader
        self._left: list[tuple[int, int, bytes]] = []

    def take(self) -> list[tuple[int, int, bytes]]:
        """Return what was read; after `leave`, what was read before and not taken."""
        if self.handle is None:
            left, self._left = self._left, []
            return left
        return self._copied(self._reader.native.reader_take(self._reader.handle, self.handle))

    def expect(self, reads: int, *, is_eager: bool) -> None:
        """Expect an end after so many more reads; be told of each read if *is_eager*."""
        if self.handle is not None:
            self._reader.native.reader_expect(self._reader.handle, self.handle, reads, is_eager)

    def leave(self) -> None:
        """Read no more; the descriptor must still be open."""
        if self.handle is not None:
            found = self._reader.native.reader_leave(self._reader.handle, self.handle)
            self.handle = None
            self._left = self._copied(found)

    def _copied(self, count: int) -> list[tuple[int, int, bytes]]:
        numbers, data = self._reader.numbers, self._reader.data
        offset, sent_wall_ns, sent_now_ns, is_urgent, *written = numbers[:HEADER]
        self.sent = (offset, sent_wall_ns, sent_now_ns) if sent_wall_ns else None
        self.written = written[0], written[1], written[2]
        self.is_urgent = bool(is_urgent)
        if count < 0:
            raise OSError(-count, os.strerror(-count))
        reads: list[tuple[int, int, bytes]] = []
        if not count:
            return reads
        last = HEADER + PER_READ * count
        whole = data[: numbers[last - 1]].tobytes()
        start = 0
        each = iter(numbers[HEADER:last].tolist())
        for wall_ns, now_ns, end in zip(each, each, each, strict=True):
            reads.append((wall_ns, now_ns, whole[start:end]))
            start = end
        return reads


class SocketReader:
    """Watch sockets by a thread of the library; call back where Python should look."""

    path: Final = "thread"
    lead_ns: Final = LEAD_NS

    def __init__(self, *, beside: Callable[[], None] = lambda: None) -> None:
        """Start the thread; raise `OSError` where that cannot be.

        *beside* is called after each batch, in the same turn of the loop.
        """
        self.native = load_native()
        self._loop = asyncio.get_running_loop()
        self.handle: int | None = self.native.reader_start()
        if self.handle is None:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self.numbers = _view(
            self.native.reader_numbers(self.handle), 8 * (HEADER + PER_READ * READS)
        ).cast("q")
        self.data = _view(self.native.reader_bytes(self.handle), BYTES)
        self._beside = beside
        self._streams: dict[int, SocketStream] = {}
        self._handles: dict[int, SocketStream] = {}
        _open.add(self)
        self._bell: int = self.native.reader_bell(self.handle)
        self._loop.add_reader(self._bell, self._woken)

    def watch(self, file: int, callback: Callable[[], None]) -> SocketStream:
        """Have the thread read *file*; call *callback* when something should be taken."""
        handle = self.native.reader_watch(self._open_handle(), file)
        return self._followed(file, handle, callback, writes=False)

    def send(
        self, file: int, callback: Callable[[], None], parts: Iterable[bytes], at_ns: int
    ) -> SocketStream:
        """Have the thread write all *parts* to *file* at *at_ns*, and read it from then on."""
        request = b"".join(parts)
        handle = self.native.reader_send(self._open_handle(), file, request, len(request), at_ns)
        return self._followed(file, handle, callback, writes=True)

    def hasten(self, file: int) -> None:
        """Leave no read of *file* to rest from now on."""
        self._streams[file].expect(0, is_eager=True)

    def leave(self, file: int) -> None:
        """Have the thread read *file* no more; the descriptor must still be open."""
        stream = self._streams.pop(file, None)
        if stream is not None and stream.handle is not None:
            del self._handles[stream.handle]
            stream.leave()

    def close(self) -> None:
        """Read no more, and end the thread."""
        if self.handle is None:
            return
        self._loop.remove_reader(self._bell)
        handle = self.handle
        self.forget()
        self.numbers.release()
        self.data.release()
        self.native.reader_stop(handle)

    def forget(self) -> None:
        """Name nothing to the library any more."""
        self.handle = None
        for stream in self._streams.values():
            stream.handle = None
        self._streams.clear()
        self._handles.clear()

    def _open_handle(self) -> int:
        if self.handle is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self.handle

    def _followed(
        self, file: int, handle: int | None, callback: Callable[[], None], *, writes: bool
    ) -> SocketStream:
        if handle is None:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        stream = SocketStream(self, handle, callback, writes=writes)
        self._streams[file] = self._handles[handle] = stream
        return stream

    def _woken(self) -> None:
        # The bell rings until no stream is left. Each is named only now that its turn has come,
        # so an answer that ends meanwhile goes before reads that can wait.
        until_s = self._loop.time() + HOLD_S
        while self.handle is not None and self._loop.time() < until_s:
            named = self.native.reader_next(self.handle)
            if named is None:
                break
            self._handles[named].callback()
        self._beside()


_open: Final[weakref.WeakSet[SocketReader]] = weakref.WeakSet()


def _forked() -> None:
    # A process that was forked off has no such thread, but shares its parent's epolls.
    for each in list(_open):
        each.forget()


os.register_at_fork(after_in_child=_forked)


def watcher(*, beside: Callable[[], None] = lambda: None) -> Watcher:
    """Return a reader where there is a library for it, else a hub."""
    try:
        return SocketReader(beside=beside)
    except OSError:
        return Hub(beside=beside)


def who_reads() -> tuple[ReadPath, str]:
    """Return who reads sockets in this process; if it is the interpreter, why."""
    try:
        loaded = load_native()
        handle = loaded.reader_start()
        if handle is None:
            raise OSError(os.strerror(ctypes.get_errno()))
        loaded.reader_stop(handle)
    except OSError as error:
        return "interpreter", str(error)
    return "thread", ""


@functools.cache
def load_native() -> ctypes.PyDLL:
    """Load the library; raise `OSError` that says why it cannot be used."""
    if os.environ.get(PURE) == "1":
        raise OSError(f"{PURE}=1")
    spec = find_spec(NAME)
    if spec is None or spec.origin is None:
        raise OSError("agentload-speedups is not installed")
    loaded = ctypes.PyDLL(spec.origin, use_errno=True)
    if not hasattr(loaded, "reader_version") or loaded.reader_version() != VERSION:
        raise OSError(OTHER_VERSION)
    sizes = BYTES, READS, HEADER, PER_READ
    if tuple((ctypes.c_int * len(sizes)).in_dll(loaded, "reader_sizes")) != sizes:
        raise OSError(OTHER_VERSION)
    pointer, number = ctypes.c_void_p, ctypes.c_int
    wide = ctypes.c_int64
    for name, result, arguments in (
        ("start", pointer, ()),
        ("stop", None, (pointer,)),
        ("bell", number, (pointer,)),
        ("numbers", pointer, (pointer,)),
        ("bytes", pointer, (pointer,)),
        ("watch", pointer, (pointer, number)),
        ("send", pointer, (pointer, number, ctypes.c_char_p, wide, wide)),
        ("expect", None, (pointer, pointer, wide, number)),
        ("take", number, (pointer, pointer)),
        ("leave", number, (pointer, pointer)),
        ("next", pointer, (pointer,)),
    ):
        function = getattr(loaded, f"reader_{name}")
        function.restype, function.argtypes = result, arguments
    return loaded


def _view(address: int, count: int) -> memoryview:
    return memoryview((ctypes.c_char * count).from_address(address)).cast("B")
