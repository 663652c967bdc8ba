"""Carry a study out: meet the servers, play, ask or
search, write everything down, load what is finished.
"""
