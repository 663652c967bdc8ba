"""Play from several machines at once: each has a share of the plan, and Ray connects them."""
