"""Nodes: processes that hold the sockets and journals of a run."""
