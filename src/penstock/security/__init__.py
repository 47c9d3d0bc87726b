"""Who a client is, and what it may do: rules without IO."""
