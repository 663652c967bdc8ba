"""Look at stored runs, bring journals in, and be rid of what is not needed."""
