"""Render a context (segments of a trace) as messages and tools of an exact token length.

A segment is a role, a length and a key; equal keys give equal bytes, so shared segments are shared
prefixes. `words` draws its text from the key, each word one token; `bodies` cuts it to the
segment's length, minus what the chat template adds around it; `messages` groups segments into chat
messages and tool calls; `renderer` joins cached pieces into a request. A salt replaces the first 8
tokens, of drawn tools too: lengths and sharing stay, and repetitions do not hit each other's cache.

`tokenizer` knows what the target counts: the emulator's rule (`count`), or measured frames and
word costs (`calibrate`, `local`).
"""
