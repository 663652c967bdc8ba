"""Experiments: laid out (`layout`), played leg by leg (`legs`), asked (`asking`), searched (`search`), or all of it (`matrix`)."""
