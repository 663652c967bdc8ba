"""What is compared: endpoints by name, where they are, and what they say they are."""
