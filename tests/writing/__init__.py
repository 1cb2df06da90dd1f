"""How the package writes files: whole or not at all, whatever becomes of the process and the disk."""
