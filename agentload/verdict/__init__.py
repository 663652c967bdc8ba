"""Turn the rows of a run, or of two, into a decision, without a word of a report."""
