"""Pages of the documentation that are written from the package itself: cells, reference, measured results."""
