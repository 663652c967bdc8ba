"""Lay out plans before anything is played: which sessions, in which order, on which machine.

No clock, no socket.
"""
