"""Weight rows of fixed point in 32-bit words: 4 weights of 8 or 6 bits, or 8 of 4.

A bias makes weights non-negative, so that two are added at a time, as the two halves of a word; it is subtracted at the
end, once for each spike. That takes half the instructions of adding one weight at a time. A layer with so many neurons
that a half could overflow (more than 257 with 8 bits) keeps its weights as single bytes.
"""

import numpy as np

from ...nn.folded import Array
from ..quantized import IntegerLayer, Quantized

# Weights in a word, by their bits; each half of a sum has 16 bits.
PER_WORD = {8: 4, 6: 4, 4: 8}


def words(rows: Array, bits: int) -> Array:
    """Rows [inputs, outputs] packed in words: outputs 2j and 2j + 1 are added to the two halves of sum j."""
    per, width = PER_WORD[bits], 16 * 2 // PER_WORD[bits]
    raised = np.pad(rows.astype(np.int64) + raised_by(bits), ((0, 0), (0, -rows.shape[1] % per)))
    groups = raised.reshape(len(rows), -1, per // 2, 2)
    low = np.arange(per // 2) * width
    return ((groups[..., 0] << low) | (groups[..., 1] << (low + 16))).sum(-1).astype(np.uint32)


def raised_by(bits: int) -> int:
    """The bias of a weight."""
    return 1 << (bits - 1)


def is_packed(layer: IntegerLayer, quantized: Quantized) -> bool:
    """Whether half a word can hold the sum even if all neurons fire."""
    return len(layer.rows) * ((1 << quantized.weight_bits) - 1) < 1 << 16
