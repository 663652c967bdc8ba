"""The questions a verdict stands on, each answered from its
own evidence: is it faster, does it carry more, is it safe?
"""
