"""From the design to the published pages: runs the notebooks, renders the book. Imports neither torch nor
pandas."""
