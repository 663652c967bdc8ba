"""Keep what was measured: journals that survive a crash, and the DuckDB file that is written from them."""
