"""The classifier of sequences: an encoder and a Linear head."""

from dataclasses import dataclass, replace

from torch import Tensor, nn

from ..nn.counts import Count, count_dense
from ..nn.folded import Folded, to_array
from ..ops.checks import require_count
from .config import EncoderConfig, require_class_names
from .encoder import EncoderNetwork
from .sequences import StreamState


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(EncoderConfig):
    """The settings of a `Classifier`."""

    classes: int
    """Number of classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("ClassifierConfig", "classes", self.classes)
        require_class_names("ClassifierConfig", self.class_names, self.classes)

    def build(self) -> "Classifier":
        return Classifier(self)


class Classifier(EncoderNetwork):
    """Sequences to classes; with pool "none", every time step to classes.

    Args:
        config: Its settings, a `ClassifierConfig`.
    """

    config: ClassifierConfig

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.features, config.classes)

    def forward(self, x: Tensor, *, lengths: Tensor | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
        """Classify whole sequences.

        Args:
            x: Values [B, T, inputs] or tokens [B, T]; packed, [1, S, inputs] or [1, S].
            lengths: Lengths of the sequences [B], from 0 to T; steps after them are not computed.
            cu_seqlens: Bounds of packed sequences [B + 1], int32.

        Returns:
            Logits [B, classes]; with pool "none" [B, T, classes], zero after each end, or [1, S, classes] if packed.
        """
        pooled, sequences = self.encoder(x, lengths=lengths, cu_seqlens=cu_seqlens, owner="Classifier")
        logits = self.head(pooled)
        return sequences.restore(logits) if self.config.pool == "none" else logits

    def init_state(self, batch: int) -> StreamState:
        """The state of `batch` streams before their first step."""
        return self.encoder.init_state(batch, owner="Classifier")

    def step(self, x: Tensor, state: StreamState | None) -> tuple[Tensor, StreamState]:
        """One time step of [B, inputs] values or [B] tokens, from a state (None: the first step).

        The logits are those of a whole call on all steps so far, or of this step with pool "none".
        """
        pooled, state = self.encoder.step(x, state, owner="Classifier")
        return self.head(pooled), state

    def fold(self, floor: float) -> Folded:
        """The network as arrays; `resofire.deploy.fold` calls it, see `resofire.nn.folded`."""
        folded = self.encoder.fold(floor, to_array(self.head.weight), to_array(self.head.bias))
        return replace(folded, class_names=self.config.class_names)

    def count_head(self, steps: float) -> list[Count]:
        return [count_dense(self.head, "head", "head", steps if self.config.pool == "none" else 1)]
