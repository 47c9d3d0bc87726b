"""Authentication and authorization of clients, without IO."""
