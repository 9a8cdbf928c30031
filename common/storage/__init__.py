"""Files, sorting on disk, sets of elements and columns of IDs. Knows nothing of the protocol."""
