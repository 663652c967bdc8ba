"""What a job looks like to others: one format a file, text from values."""
