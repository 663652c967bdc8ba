"""Decide, as pure state machines, what is sent to whom and when."""
