"""Models × configurations × workloads as one list of studies that can be resumed.

`read` parses the file into a `Matrix` (`described`, `measure`). `arms` drops the
configurations that do not fit a model and writes the arms file for the rest; `steps`
makes one `ModelPart` a model: its arms, and its steps with the time each takes. A
step is one study. `play` hands them one at a time to a child process (`child`), so a
crash costs one step. When a replay does not start, `faults` starts its servers one
by one and the broken ones are left out. `pages` ends in one page over all models.

A model has one run in one database, and how each step ended is a row of that run
(`past`): a step is done where the stored study measures the same. Once the run has begun,
nothing more is measured into it where the file describes other servers, traces or load.
"""
