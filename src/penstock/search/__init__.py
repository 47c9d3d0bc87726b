"""Searches the records of partitions in their segment files.

query       what is searched for, and the pieces in which work is given out and results come back
engine      the functions that a helper process runs; imports the rest when it is called
planning    splits ranges of offsets into chunks, newest first, and leaves out what the index rules out
scanning    reads chunks and returns the records that match
prefilter   finds the batches that have the searched bytes, before any record is decoded
matching    the conditions, evaluated on Arrow columns
expression  the condition in CEL, on decoded JSON
rows        rows of Arrow batches as Python values
gram_index  a file beside a sealed segment that tells which parts of it cannot contain some bytes
directory   the partitions of a topic in a directory, to search without a broker
progress    the order of chunks, the limit and the progress of one search

A node runs the engine in helper processes, so that neither records nor pyarrow are loaded into it.
"""
