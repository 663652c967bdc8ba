"""The same questions to every arm, graded: what an evaluation asks, what it costs, what the answers show."""
