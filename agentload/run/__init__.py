"""Carry out a study: meet the servers, play, ask or search, write the rows and load them."""
