"""Decide what each section of a report says.

One file a section, from the decision to words and figures.
"""
