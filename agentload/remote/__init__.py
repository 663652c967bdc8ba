"""Play from several dispatchers at once, on this machine or on others that Ray connects."""
