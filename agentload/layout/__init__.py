"""Plans, laid out before anything is played: which sessions each
arm plays, in which order, from which machine. No clock, no socket.
"""
