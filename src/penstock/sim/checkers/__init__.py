"""What happened in a run (`history`), and the rules that every history must obey, each a named class."""
