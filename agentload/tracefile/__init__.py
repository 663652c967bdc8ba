"""Read and write trace files."""

from agentload.tracefile.files import digest, lines, read, write

__all__ = ["digest", "lines", "read", "write"]
