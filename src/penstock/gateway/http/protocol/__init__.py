"""HTTP/1.1 itself: requests parsed, routed and checked, responses and errors written. The routes are one level up."""
