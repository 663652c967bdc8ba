"""What servers and GPUs say of themselves while they work: parse pure, fetch thin."""
