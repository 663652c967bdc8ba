"""List models × configurations × workloads as studies that can be resumed.

`read` parses the file into a `Matrix` (`described`, `measure`). `arms` writes the arms file of a
model; `parts` drops the configurations that do not fit it and makes one `ModelPart` a model;
`steps` gives the part its steps, with the time that each takes. A step is one study. `play` hands
them one at a time to a child process (`child`), so a crash costs one step. When a replay does not
start, `faults` starts its servers one by one and the broken ones are left out. `pages` ends with
one page over all models.

A model has one run in one database, and how each step ended is a row of that run (`past`): a step
is done where the stored study measures the same. Once the run has begun, nothing more is measured
into it where the file describes other servers, traces or load.
"""
