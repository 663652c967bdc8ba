"""One rule a file: the module docstring is its message, `NEEDS` its inputs, `check` its judgement."""
