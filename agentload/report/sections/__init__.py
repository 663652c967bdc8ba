"""Decide what each section of a report says: one file
a section, from the decision to words and figures.
"""
