"""Files: named arrays, replaced as a whole and checked when they are read."""
