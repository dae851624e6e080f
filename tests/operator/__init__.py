"""The operator: its parts by themselves, and the whole of it in a real cluster."""
