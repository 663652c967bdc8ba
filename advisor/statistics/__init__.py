"""One statistical idea a file, in numpy and scipy; each checked against simulated truth."""
