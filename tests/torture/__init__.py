"""A torture test: random problems over every way of inference, each compared with a dense computation in NumPy.

Run it with `make torture`, or one problem again with `python -m tests.torture --seed 1234`.
"""
