"""How well the number of workers follows the load: days of tasks against the operator's own decision, on no cluster."""
