"""The benchmarks' own arithmetic, and one small comparison from end to end."""
