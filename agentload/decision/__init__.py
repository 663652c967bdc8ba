"""One decision, from start to end: what is asked
next, what a budget can settle, and the playing of it.

`sequence` and `forecast` are pure: from what is known to the next question, and from a budget
to its chances. `play` carries the questions out, one study after another, all kept in one run.
"""
