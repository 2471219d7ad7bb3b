"""What is measured of lkgp alone: products, growth, memory, and how well it stops training runs."""
