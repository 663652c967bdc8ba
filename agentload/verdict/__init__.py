"""Turn the rows of a run, or of two, into a decision, without the text of a report."""
