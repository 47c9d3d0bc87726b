"""Consumer groups and committed offsets: state machines whose state lives in `__consumer_offsets`."""
