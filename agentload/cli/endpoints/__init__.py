"""Write and check the arms file: what is compared, where it is, what it must be."""
