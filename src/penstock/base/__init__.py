"""What every layer knows: ids, errors, settings."""
