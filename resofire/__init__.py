"""Resofire: long-sequence spiking neural networks in PyTorch."""

__version__ = "0.1.0"
