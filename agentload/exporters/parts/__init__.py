"""Ideas that exporters share: when calls are sent, which blocks they have, and their words."""
