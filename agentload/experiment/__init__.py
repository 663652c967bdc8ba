"""Plans of experiments: which sessions each arm plays, in which order."""
