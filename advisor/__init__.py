"""Turn evidence about server configurations into a decision that an expert would sign."""
