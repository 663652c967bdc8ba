"""Read and write trace files."""

from agentload.tracefile.reader import digest, read
from agentload.tracefile.writer import lines, write

__all__ = ["digest", "lines", "read", "write"]
