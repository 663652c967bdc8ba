"""Join the dispatcher and emulated engines in virtual time: no sockets, no sleeping."""
