"""Speak to the user: one verb a file."""
