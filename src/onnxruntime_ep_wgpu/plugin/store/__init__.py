"""Stores claims and Programs on disk for later processes, which then lower nothing and import no compiler.

- `identity`: dependencies besides the graph: this package, libraries, the Target, settings.
- `claims`, `programs`: the content of entries; `stored`: lookups and stores of a session.

`kept/` has the folder and the format of entries. A missing, damaged or outdated entry costs only the time to compile.
"""
