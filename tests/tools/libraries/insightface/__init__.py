"""A stand-in for insightface."""
