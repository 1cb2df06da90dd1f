"""Runs that are kept to be found again: `key` (the identity of a run: its sizes and values, and where its tensors lie), `record`
(what is kept of it: its dispatches with their bind groups), `repeat` (a run again, and runs that have a name: captures), `growth`
(sizes that grow from run to run)."""
