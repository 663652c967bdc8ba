"""Describe the endpoints of a comparison: where they are, and what their servers report."""
