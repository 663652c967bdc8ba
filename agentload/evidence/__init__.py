"""Turn the rows of a run into the advisor's evidence: columns
of observations and facts about the servers, without judgement.
"""
