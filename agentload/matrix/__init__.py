"""Models × configurations × workloads as one plan that can be resumed.

`read` parses the file into a `Matrix` (`described`, `measure`). `arms` drops the
configurations that do not fit a model and writes the arms file for the rest; `steps`
makes one `Part` a model: its arms, and its steps with the time each takes. A step is one
study. `play` hands them one at a time to a child process (`child`), so a crash costs one
step, and records the result in the model's `state.json` (`past`). When a replay does not
start, `faults` starts its servers one by one and the broken ones are left out.

A model has one run in one database. It is fixed by digests of its servers'
settings, traces and load, taken when the run starts: with other digests nothing
more is measured into it. Until the run starts, everything may still change.
"""
