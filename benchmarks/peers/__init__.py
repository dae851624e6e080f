"""One folder per queue. ``peer.py`` describes it; the rest is the smallest program that uses it as its users would.

The programs run in environments of their own, where neither Headrace nor the bench's own packages are: they
import their library, the standard library, and `benchmarks.peers.programs`. Nothing is imported here.
"""
