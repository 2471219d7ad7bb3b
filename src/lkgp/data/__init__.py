"""Data: the partial grid, observations read from arrays and tables, scaling, and smaller parts of the data."""
