"""The methods that are compared. Every module here registers one or more comparators; a new one is one new file."""
