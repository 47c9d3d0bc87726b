"""Classic groups: one member, the leader, assigns; the coordinator distributes the assignment."""
