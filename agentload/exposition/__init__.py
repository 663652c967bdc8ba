"""What a server's /metrics text says, whatever server and version wrote it: pure, and the one place that knows their names."""
