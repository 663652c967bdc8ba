"""Settings that all tests share."""

import os

from hypothesis import settings

# Shared and slow machines make deadlines lie; `HYPOTHESIS_PROFILE=thorough` looks twenty times longer.
settings.register_profile("quick", deadline=None, max_examples=50, print_blob=True)
settings.register_profile("thorough", deadline=None, max_examples=1_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
