"""What the HTTP and line doors share: reading, writing, tailing, metrics and health."""
