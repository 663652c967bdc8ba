"""Models × configurations × workloads as one plan that can be gone on with: a file → cells → steps, each step one verb."""
