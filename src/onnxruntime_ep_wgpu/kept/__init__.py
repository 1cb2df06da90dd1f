"""What is kept on disk for the next process, in the user's folder for caches.

`folder` (where entries lie, whose they are, how many bytes), `entry` (one as bytes, checked). `plugin/store/` keeps what was
compiled, `device/matrix_refusals.py` which matrix units of an adapter are wrong. An entry that is missing or damaged costs
time, and nothing more.
"""
