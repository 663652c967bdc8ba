"""What a run is, as data: one frozen value that the command
line, a file, a job, a matrix and a suggestion all produce.

A study says what is measured and under which load; not where rows go, and not what
was found. It is written to the database whole, and everything that must know how a
run was made reads it from there. Pure: text in, text out; who opens files is above.
"""
