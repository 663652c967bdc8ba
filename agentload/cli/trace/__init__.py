"""Make, look at and check traces."""
