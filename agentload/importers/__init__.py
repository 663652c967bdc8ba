"""Read logs and traces of other programs as sessions; one format a file, found by its name.

A format is a module of this package with

- a docstring: its first line is shown in the list of formats, the whole of it as the format's help;
- `FILES`: patterns of the files it reads inside a folder (`.gz` and `.zst` may follow);
- `LICENCE`: what to know before sharing an import of its public sources, or None;
- `sniff(head) -> float`: how sure it is, from 0 to 1, that a file with this head is of its format;
- `sessions(intake, *, …) -> Iterator[Session]`: the sessions in order of start, each spawned one directly behind its parent. Its
  keyword-only parameters are the format's options; `block` is also the size of a block of the cache in the trace's header.

What formats have in common is in `parts`: `intake` brings the files, names contents, and takes what is odd, estimated or left out
(`notes`); `files` and `fields` read what stands in them; `reuse` measures how much of a source a prefix cache could hold. Then, by what a
source has: `requests` (lengths, ids of blocks or messages of single requests) over `order` and `blocks`; `transcripts` (entries of agents
and their sub-agents) over `chat` and `dialogue`.
"""
