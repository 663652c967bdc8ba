"""One format a file: its name is the format's name, `files(document)`
yields the (path, text) of every file that it writes.
"""
