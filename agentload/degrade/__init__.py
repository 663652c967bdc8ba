"""Make a trace less kind: each way a file with a pure function from sessions to sessions.

Recorded traces are often better than what a server will meet: nearly every call hits the prefix cache, nobody pauses over lunch. These
functions say by how much a result depends on that.
"""
