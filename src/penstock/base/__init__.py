"""Used by every layer: ids, errors, outcomes, promises, steps, settings, metrics, and the interface to the world."""
