"""Play a plan over real sockets: stamp calls, drive the dispatcher, check our own side."""
