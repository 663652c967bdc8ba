"""Write the start-up log that a real server writes, so that whoever reads logs for pool size, dtype and backend finds them."""

from __future__ import annotations

import os
import time
from typing import TextIO

from agentload.serve.server import Running


def write_log(running: Running, file: TextIO) -> None:
    """Write vLLM's lines about a server that is ready."""
    process = os.getpid()
    now = time.strftime("%m-%d %H:%M:%S")
    lines = running.facts.log_lines(running.url.removesuffix("/v1"))
    file.writelines(f"({name} pid={process}) INFO {now} [{place}] {message}\n" for name, place, message in lines)
    file.write(f"INFO:     Started server process [{process}]\nINFO:     Application startup complete.\n")
    file.flush()
