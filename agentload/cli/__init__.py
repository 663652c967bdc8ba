"""Speak to the user: one verb a file, found by its file name, imported only when it is invoked.

A verb is a module of this package with

- a docstring: its first line is shown by `agentload --help`, the whole of it by `agentload VERB --help`;
- a function `run` with keyword-only parameters: its signature is the verb's options and arguments (typer annotations), it returns None.

`doctor.py` is `agentload doctor`. A folder is a group: `trace/show.py` is `agentload trace show`, and the docstring of
`trace/__init__.py` is the group's help. A name that Python keeps for itself gets a trailing underscore (`trace/import_.py`), an
underscore inside is a dash. Files that start with an underscore, and `main.py`, are no verbs. Options that verbs share have one place:
`run` takes a `load`, and `_load.with_load` puts the options of `_load.load` into its signature.

An option that means nothing without another is named in the verb's `NEEDS`, so that nobody relies on what is ignored.

Results go to stdout, progress and errors to stderr. A verb raises `AgentloadError` for what the user can mend (exit code 1; 2 for
`UsageError`, 3 for `GateError`) and never prints an error itself.
"""
