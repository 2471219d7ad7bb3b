"""The data that comparators are run on. Every module here registers a family of cases; a new one is one new file."""
