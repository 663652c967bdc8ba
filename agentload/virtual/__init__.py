"""Dispatcher and engines joined in virtual time: no sockets, no sleeping."""
