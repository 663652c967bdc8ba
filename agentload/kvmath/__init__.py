"""Turn model geometry into KV-cache bytes, pages and pool tokens."""
