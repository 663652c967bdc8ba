"""Make sure that a file is ours: no other user's, and held by no other process."""

import fcntl
import os
import stat
from pathlib import Path

from agentload.errors import StoreError


def refuse_foreign(path: Path) -> None:
    """Raise StoreError if *path* is another user's, in a folder such as /tmp, which all may write.

    The names of our files can be foretold: whoever lays out a folder or a link under one
    reads, redirects or exchanges what is written there. Linux refuses some of that by
    default, not all. With `AGENTLOAD_SHARED=1` the user wants to share.
    """
    try:
        owner = path.lstat().st_uid
        mode = path.parent.stat().st_mode
    except OSError:  # it is not there yet, or is refused by name when it is opened
        return
    is_of_all = mode & stat.S_ISVTX and mode & stat.S_IWOTH
    if is_of_all and owner != os.geteuid() and os.environ.get("AGENTLOAD_SHARED") != "1":
        raise StoreError(
            f"{path} belongs to another user, in a folder where all may create files",
            hint="use a folder of your own: --db ~/agentload.duckdb; to share files, "
            "set AGENTLOAD_SHARED=1",
        )


def open_locked(path: Path) -> int | None:
    """Open a file, made where it is missing, and lock it; None where another process holds it.

    The kernel frees the lock with the last process that has the descriptor.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:  # a network file system may offer no locks
        os.close(fd)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return fd
