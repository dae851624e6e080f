"""Real servers and waiting helpers for the tests; nothing in here is a mock."""
