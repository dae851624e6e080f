"""What runs by itself: leadership, and for each queue recovery, promotion and its figures."""
