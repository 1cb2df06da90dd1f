"""The cache on disk, in the user's cache folder.

`folder` has the location, ownership and size limit of entries; `entry` is their checked byte format. `plugin/store/` stores
compiled Programs, and `device/matrix_refusals.py` the faulty matrix units of an adapter. A missing or damaged entry costs time,
nothing else.
"""
