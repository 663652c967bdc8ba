"""Generate traces: one workload a file."""
