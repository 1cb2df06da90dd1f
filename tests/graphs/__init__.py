"""Random graphs, compared with what they must give. In the order that data flows:

`generate` a seed to a graph; `recipes/` what it is made of; `builder` how it grows; `semantics`, `rounding`, `values` what it
gives and how exactly; `case` the graph as data; `check` runs and judges it; `shrink` makes a failing one small; `worker` one
process, `batches` many, `__main__` the command.
"""
