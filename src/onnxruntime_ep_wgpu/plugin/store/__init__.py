"""What was compiled, kept on disk for the next process: claims and Programs, so that it lowers nothing and imports no compiler.

`identity` (what an answer depends on beside the graph: this package, libraries, the Target, settings), `folder` (where entries
lie, whose they are, how many bytes), `entry` (one as bytes, checked), `claims` and `programs` (what is in them), `stored` (what a
session asks). An entry that is missing, damaged or of something else costs the time to compile, and nothing more.
"""
