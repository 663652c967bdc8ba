"""Generate and grade accuracy tasks: one task a file."""
