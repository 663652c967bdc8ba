"""What importers share: reading, identity, anomalies, sizes, time, structure."""
