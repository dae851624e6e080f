"""How Headrace tells what it does. What belongs here: log, metric and span set-up and their names."""
