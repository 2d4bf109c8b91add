"""Benchmarks of poolgrad against its peers: `python -m benchmarks.cpu --help`."""
