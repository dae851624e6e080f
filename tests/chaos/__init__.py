"""Fault drills: something breaks all the while, and every task is accounted for at the end.

Each drill is a test with a short form (part of ``make test``) and a long one (``make drill``). They differ in
numbers only.
"""
