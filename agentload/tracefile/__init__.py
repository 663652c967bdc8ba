"""Read and write trace files."""
