"""Searches over topics, on helper processes of this node and of the brokers that lead the partitions.

searches   gives work to helper processes here, or to other brokers
stream     one client's search: results as they are found, progress, and an end
indexing   makes the indexes of sealed segments, for topics that have them switched on
"""
