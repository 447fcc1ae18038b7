"""Benchmarks: the raw engine, the service and its peers in one table. `make bench` and `make bench-peers` run them."""
