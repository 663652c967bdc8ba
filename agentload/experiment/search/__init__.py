"""What is found by trying: how much an arm carries, which features live together; kept beside a run."""
