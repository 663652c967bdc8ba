"""What tasks share: drawing, filling a context to a length, grading."""
