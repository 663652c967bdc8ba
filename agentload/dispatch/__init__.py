"""Pure machines that decide a replay: which call is due, which goes out, how each one ended."""
