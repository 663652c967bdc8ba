"""Show what is stored and what is running, on read-only pages for one machine's browser."""
