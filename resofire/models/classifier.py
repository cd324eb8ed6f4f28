"""The classifier of sequences: an encoder and a Linear head."""

from dataclasses import dataclass

from torch import Tensor, nn

from .config import EncoderConfig, require_count
from .encoder import Encoder
from .network import Network
from .sequences import StreamState


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(EncoderConfig):
    """The settings of a `Classifier`."""

    classes: int
    """Number of classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("ClassifierConfig", "classes", self.classes)

    def build(self) -> "Classifier":
        return Classifier(self)


class Classifier(Network):
    """Sequences to classes; with pool "none", every time step to classes."""

    config: ClassifierConfig

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.head = nn.Linear(config.features, config.classes)

    def forward(self, x: Tensor, *, lengths: Tensor | None = None, cu_seqlens: Tensor | None = None) -> Tensor:
        """Logits [B, classes].

        x           [B, T, inputs] values or [B, T] tokens; packed, [1, S, inputs] or [1, S] with `cu_seqlens` (int32)
        lengths     [B], from 0 to T: the steps behind are not computed and count in nothing

        With pool "none" the logits are [B, T, classes], zero behind each end, or [1, S, classes] when packed.
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
