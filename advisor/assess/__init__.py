"""Compute once what a decision rests on: speed, lines, accuracy, capacity, reach, figures."""
