"""Queues and programs to start from. Every configuration in here is run by a test against its own numbers."""
