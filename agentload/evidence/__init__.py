"""Turn the rows of a run into the advisor's evidence.

That is columns of observations and facts about the servers, without judgement.
"""
