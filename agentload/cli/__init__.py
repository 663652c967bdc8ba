"""Speak to the user: a verb is a public function, found by
its name in the source, imported only when it is invoked.

A verb is a public function of a module of this package with

- keyword-only parameters: its signature is the verb's options and arguments. A text next to
  the type is an option's help, and what needs more says so with typer. It returns None;
- a docstring: its first line is shown by `agentload
  --help`, the whole of it by `agentload VERB --help`.

`doctor` is `agentload doctor`, whichever module it stands in: verbs of one idea share
one. A folder is a group: `show` in `trace/` is `agentload trace show`, and the docstring
of `trace/__init__.py` is the group's help. A name that Python keeps for itself gets a
trailing underscore (`import_`), an underscore inside is a dash. What is no verb starts
with an underscore or stands in a file that does, or in `main.py`. The options of a study
are made from its fields (`_study.runs`); others that verbs share stand in `_options.py`.

An option that means nothing without another is named by
`_lazy.needs`, so that nobody relies on what is ignored.

Results go to stdout, progress and errors to stderr. A verb raises `AgentloadError` for what the
user can fix (exit code 1; 2 for `UsageError`, 3 for `GateError`) and never prints an error itself.
"""
