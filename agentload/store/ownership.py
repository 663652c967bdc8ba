"""Write nothing where another user waits for it: in a folder of all users, such as /tmp."""

import os
import stat
from pathlib import Path

from agentload.errors import StoreError


def refuse_foreign(path: Path) -> None:
    """Raise StoreError if *path* is another user's, in a folder where all users may create files.

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
