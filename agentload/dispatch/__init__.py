"""Decide a replay in pure machines: which call is due, which is sent, how each one ended."""
