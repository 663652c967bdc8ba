"""Read logs and traces of other programs as sessions; one format a file, found by its name.

A format is a module of this package with

- a docstring: its first line is shown in the list of formats, the whole of it as the format's help;
- `FILES`: patterns of its files in a folder (`.gz` and `.zst` may follow);
- `LICENCE`: what to know before sharing an import of its public sources, or None;
- `sniff(head) -> float`: the confidence, from 0 to 1, that a file with this head has its format;
- `sessions(intake, *, …) -> Iterator[Session]`: the sessions in
  order of start, each spawned one right after its parent. Its
  keyword-only parameters are the format's options; `block`
  is also the cache block size in the trace's header.

`parts` has what formats share, with a map of it; all of it can be imported from there.
"""
