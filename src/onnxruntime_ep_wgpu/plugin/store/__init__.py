"""What was compiled, kept on disk for the next process: claims and Programs, so that it lowers nothing and imports no compiler.

`identity` (what an answer depends on beside the graph: this package, libraries, the Target, settings), `claims` and `programs`
(what is in entries), `stored` (what a session asks). `kept/` has the folder and the form of entries. An entry that is missing,
damaged or of something else costs the time to compile, and nothing more.
"""
