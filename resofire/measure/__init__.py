"""Fire rates, operations, energy and time of a network."""
