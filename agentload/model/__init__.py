"""Frozen data that every room shares: trace, plan, commands and events, rows, profile."""
