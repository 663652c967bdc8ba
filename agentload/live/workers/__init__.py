"""Other processes that hold the sockets and journals
of a run; one dispatcher decides what they send.
"""
