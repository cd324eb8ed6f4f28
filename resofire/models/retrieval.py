"""Do two documents belong together? One encoder reads both, a small head compares the two vectors."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..nn.counts import NUMBER, Count, count_dense
from ..ops.checks import require_choice, require_count, sequence_count
from .config import EncoderConfig, require_class_names
from .encoder import EncoderNetwork
from .sequences import StreamState, require_lengths


@dataclass(frozen=True, kw_only=True)
class RetrievalConfig(EncoderConfig):
    """The settings of a `Retrieval`. Its pool is "mean", "last" or "leaky"."""

    classes: int = 2
    """Number of classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("RetrievalConfig", "classes", self.classes)
        require_class_names("RetrievalConfig", self.class_names, self.classes)
        require_choice("RetrievalConfig", "pool", self.pool, ("mean", "last", "leaky"))

    def build(self) -> "Retrieval":
        return Retrieval(self)

    @property
    def pairs(self) -> bool:
        return True


class Retrieval(EncoderNetwork):
    """Pairs of sequences to classes: [a, b, a - b, a·b] → Linear → GELU → Linear.

    Args:
        config: Its settings, a `RetrievalConfig`.
    """

    config: RetrievalConfig

    def __init__(self, config: RetrievalConfig) -> None:
        super().__init__(config)
        self.head = nn.Sequential(
            nn.Linear(4 * config.features, config.features), nn.GELU(), nn.Linear(config.features, config.classes)
        )

    def forward(self, x: Tensor, *, lengths: Tensor | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
        """Classify pairs of whole documents.

        Args:
            x: Tokens [B, 2, T] or values [B, 2, T, inputs]; packed, [1, S] or [1, S, inputs], where documents 2i and
                2i + 1 are pair i.
            lengths: Lengths of the documents [B, 2], from 0 to T; steps after them are not computed.
            cu_seqlens: Bounds of packed documents [2B + 1], int32.

        Returns:
            Logits [B, classes].
        """
        if cu_seqlens is None:
            self.encoder.require_input("Retrieval", x, "B, 2, T")
            if x.shape[1] != 2:
                raise ValueError(f"Retrieval: x must hold 2 documents in its second dimension, got {list(x.shape)}")
            if lengths is not None:
                require_lengths("Retrieval", lengths, (x.shape[0], 2), x.shape[2])
                lengths = lengths.flatten()
            x = x.flatten(0, 1)
        else:
            self.encoder.require_input("Retrieval", x, "1, S")
            documents = sequence_count("Retrieval", x[:1], cu_seqlens)
            if documents % 2:
                raise ValueError(f"Retrieval: cu_seqlens must bound an even number of documents, got {documents}")
        pooled, _ = self.encoder(x, lengths=lengths, cu_seqlens=cu_seqlens, owner="Retrieval")
        return self._compare(pooled)

    def init_state(self, batch: int) -> StreamState:
        """The state of `batch` pairs before their first step."""
        return self.encoder.init_state(2 * batch, owner="Retrieval")

    def step(self, x: Tensor, state: StreamState | None) -> tuple[Tensor, StreamState]:
        """One time step of both documents, [B, 2] tokens or [B, 2, inputs] values, from a state (None: the first step).

        The logits are those of a whole call on all steps so far."""
        self.encoder.require_input("Retrieval.step", x, "B, 2")
        if x.shape[1] != 2:
            raise ValueError(f"Retrieval.step: x must hold 2 documents in its second dimension, got {list(x.shape)}")
        pooled, state = self.encoder.step(x.flatten(0, 1), state, owner="Retrieval")
        return self._compare(pooled), state

    def _compare(self, pooled: Tensor) -> Tensor:
        """Logits from the vectors of documents 2i and 2i + 1."""
        a, b = pooled[0::2], pooled[1::2]
        return self.head(torch.cat((a, b, a - b, a * b), -1))

    def count_head(self, steps: float) -> list[Count]:
        features, (first, _, last) = self.config.features, self.head
        compare = Count(layer="head.compare", component="head", times=1, add=features, multiply=features,
                        activations_read=NUMBER * 2 * features, activations_written=NUMBER * 2 * features)  # fmt: skip
        gelu = Count(layer="head.1", component="head", times=1, nonlinear=features, activations_read=NUMBER * features,
                     activations_written=NUMBER * features)  # fmt: skip
        return [compare, count_dense(first, "head.0", "head", 1), gelu, count_dense(last, "head.2", "head", 1)]
