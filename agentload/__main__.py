"""`python -m agentload` is the command `agentload`."""

import sys

from agentload.cli.main import main

sys.exit(main())
