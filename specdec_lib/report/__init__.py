"""What the pages share: one look for figures, tables and numbers. Reads ``data/`` only; needs no torch."""
