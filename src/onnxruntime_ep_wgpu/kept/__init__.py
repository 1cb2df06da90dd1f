"""The cache on disk, in the user's cache folder.

`folder` has the location, ownership and size limit of entries; `entry` is their checked byte format. `plugin/store/` stores
compiled Programs, `plugin/context/` compiled models and which of them this user made, and `device/matrix_refusals.py` the faulty
matrix units of an adapter. A missing or damaged entry of the cache costs time, nothing else.

`plugin/context/` also uses `entry` for the contexts of compiled models, which are the users' files: a change of the format makes
them unreadable.
"""
