"""Read, write, check and describe trace files of any size.

`wire` is the format as msgspec types, `codec` converts a line between them and the model,
and `files` streams lines from plain and compressed files or pipes. A `Trace` is lazy: each
iteration reads the file again, one session at a time, so memory does not grow with the file.

`check` and `references` report what cannot be played; `overview` summarises lengths and
waits; `reuse` computes what a prefix cache would hold; `pace` says when calls are sent
where no server decides it, and `load` estimates how they overlap at a nominal speed.
All of them read sessions in order and keep only what later sessions may refer to.
"""

from agentload.tracefile.files import digest, lines, read, write

__all__ = ["digest", "lines", "read", "write"]
