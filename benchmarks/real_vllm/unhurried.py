"""Let vLLM's idle processes sleep: setup.sh makes this
the `sitecustomize` of the installation that it sets up.

While they wait for each other, they yield the processor over and over for up to
a second. On two cores that leaves so little to everybody else that whole
streams arrive at once. vLLM's own files stay as they are.
"""

import os
import time

PAUSE_S = 50e-6

os.sched_yield = lambda: time.sleep(PAUSE_S)
