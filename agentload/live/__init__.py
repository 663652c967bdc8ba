"""Real sockets: stamped calls, the runner that drives
a plan over them, and how well our own side kept up.
"""
