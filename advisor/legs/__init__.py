"""Answer the questions of a verdict, each from its own evidence: faster, more agents, safe?"""
