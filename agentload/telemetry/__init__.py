"""Read what servers and GPUs report while they work: pure parsers behind a thin fetcher."""
