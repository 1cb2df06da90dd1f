"""A stand-in for optimum."""
