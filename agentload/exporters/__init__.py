"""Write traces in the formats of other programs; one format a file, found by its name.

A format is a module of this package with a docstring (its help, including what the format cannot
express), and a function `lines(trace, *, …) -> Iterator[bytes]` whose keyword-only parameters
are the format's options. A trace is exported session by session, so any size fits into memory,
except where a format sorts all calls by time (`mooncake`). `parts.speech` writes contexts as
words: the trace's own if an import kept them, drawn ones of the same lengths otherwise.
"""
