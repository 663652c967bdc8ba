"""Describe a run as one frozen value, a study, whether options, a file or a job made it.

A study says what is measured and under which load; not where rows go, and not what
was found. The whole study is written to the database, and everything that must know
how a run was made reads it from there. Pure: text in, text out; callers open files.
"""
