"""The networks that the paper compares with, as blocks: `ClassifierConfig(block=S4DConfig())`. See docs/baselines.md
for what differs from the originals.
"""

from .binary_s4d import GSU, BinaryS4D, BinaryS4DConfig, GSUConfig
from .elm import ELM, ELMConfig
from .s4d import S4D, S4DConfig
from .spiking_lmu import SpikingLMU, SpikingLMUConfig
from .spiking_ssm import SpikingSSM, SpikingSSMConfig
from .state_space import StateSpace
from .stochastic_s4 import StochasticS4, StochasticS4Config
from .transformer import Transformer, TransformerConfig

__all__ = [
    "ELM", "GSU", "S4D", "BinaryS4D", "BinaryS4DConfig", "ELMConfig", "GSUConfig", "S4DConfig", "SpikingLMU",
    "SpikingLMUConfig", "SpikingSSM", "SpikingSSMConfig", "StateSpace", "StochasticS4", "StochasticS4Config",
    "Transformer", "TransformerConfig",
]  # fmt: skip
