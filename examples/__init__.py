"""Small complete programs outside the package: a neuron, a block, a data set and a training loop of one's own."""
