"""Write traces in the formats of other programs; one format a file, found by its name.

A format is a module of this package with a docstring (its help, and what the format cannot say), and a function
`lines(trace, *, …) -> Iterator[bytes]` whose keyword-only parameters are the format's options.
"""
