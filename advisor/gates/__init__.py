"""One gate a file: is the measurement physically possible, and was it taken fairly?

`check(evidence, policy)` answers.
"""
