"""KRaft as a sans-IO core: messages and time go in, work for the driver comes out.

`node.Node` is the entry point; each role is a class in its own module. Followers pull (KIP-595), pre-votes precede
votes (KIP-996), snapshots replace deleted parts of the log (KIP-630), and voters are added, removed and moved one at a
time (KIP-853). A quorum of one voter runs the same code.
"""
