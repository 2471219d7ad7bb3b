"""The experiments of Lin et al. (2025): data, splits, methods, runs that resume, and a report beside the published numbers."""
