"""Classic groups: members meet, one of them assigns, and the coordinator only carries the assignment round."""
