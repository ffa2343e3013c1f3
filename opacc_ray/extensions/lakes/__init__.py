"""lakes."""
