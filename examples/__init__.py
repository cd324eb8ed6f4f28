"""Small complete programs outside the package: your own neuron, block, data set and training loop."""
