"""The networks that the paper compares with, as blocks: `ClassifierConfig(block=S4DConfig())`. See docs/baselines.md
for what differs from the originals.
"""

from .binary_s4d import GSU, BinaryS4D, BinaryS4DConfig, GSUConfig
from .elm import ELM, ELMConfig
from .neuron_table import NEURON_TABLE, Feedback, FeedbackConfig
from .s4d import S4D, S4DConfig
from .spiking_lmu import SpikingLMU, SpikingLMUConfig
from .spiking_ssm import SpikingSSM, SpikingSSMConfig
from .state_space import StateSpace
from .stochastic_s4 import StochasticS4, StochasticS4Config
from .transformer import Transformer, TransformerConfig

__all__ = [
    "ELM", "GSU", "NEURON_TABLE", "S4D", "BinaryS4D", "BinaryS4DConfig", "ELMConfig", "Feedback", "FeedbackConfig",
    "GSUConfig", "S4DConfig", "SpikingLMU", "SpikingLMUConfig", "SpikingSSM", "SpikingSSMConfig", "StateSpace",
    "StochasticS4", "StochasticS4Config", "Transformer", "TransformerConfig",
]  # fmt: skip
