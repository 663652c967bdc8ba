"""Compute everything a decision rests on, once:
speed, lines, accuracy, capacity, reach, figures.
"""
