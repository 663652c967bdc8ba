"""Share what tasks are made of: drawing, filling up to a length, matching answers."""
