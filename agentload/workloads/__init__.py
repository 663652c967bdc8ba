"""Generate traces: one workload a file, found by its name.

`generate(rng, *, …)` yields sessions in the order they start, each followed by those it spawns;
its keyword-only parameters are the workload's options, and of a record among them each field.
`parts` has what they share:
`draws` (inverse CDFs over one uniform draw, equal on every Python), `times` (arrivals and
think times), and `talk`, which composes a session turn by turn and keeps track of its context.

Every constant is measured, with its source in a comment, or marked as judgement.
A workload declares the quantiles it should have (`TARGETS`), and `parts.targets`
compares a generated trace with them. Equal seeds and options give equal bytes.
"""
