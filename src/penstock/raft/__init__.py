"""KRaft as a sans-IO core: messages and time go in, work for the driver comes out.

`node.Node` is the entry point; each role is a class in a module of its own. Followers pull (KIP-595), votes are
preceded by pre-votes (KIP-996), snapshots replace what the log no longer holds (KIP-630), and voters are
added, removed and moved one at a time (KIP-853). One voter is a quorum by the same code.
"""
