"""Tables of plain text that fit a terminal."""
