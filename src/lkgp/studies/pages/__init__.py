"""The pages, tables and figures, written from the recorded results alone."""
