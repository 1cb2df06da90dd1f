"""Passes over the lowered graph, one per file, in the order a graph meets them: `share` (each map once), `apart` (readers
that calculate weights for themselves), `dead` (what nothing reads goes), `place` (joins and pads in memory), `alias` (outputs
that begin as an input), `fuse` (groups that are kernels), `one_row/` (kernels for a token alone); `order` puts nodes behind what
they read, `cost` says what a kernel has to do.
"""
