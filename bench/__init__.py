"""`python -m bench.compare`: this provider, the official plugin and the CPU provider on the same models and inputs.

Files: compare (arguments, processes, statistics), worker (one process, one provider, one model), show (table, chart).
"""
