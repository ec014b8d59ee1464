"""What one layer keeps for a sequence. A layer of a model is a tuple of these: empty where it keeps nothing."""

from dataclasses import dataclass

from oomcast.kv.fields import KvError
from oomcast.kv.formats import Format


@dataclass(frozen=True, slots=True)
class Widths:
    """How a cache is stored. conv, ssm: bytes of an element of the two states of a recurrent layer."""

    keys: Format
    values: Format
    conv: int
    ssm: int


@dataclass(frozen=True, slots=True)
class Attention:
    """Keys and values of each token; of the last `span` ones where that is set. kind: as layer_types calls it."""

    kind: str
    heads: int
    key_dim: int
    value_dim: int
    span: int | None = None

    def token_bytes(self, widths: Widths, tp: int) -> int:
        """Bytes of one token on one of tp ranks; with more ranks than heads each has a copy of one."""
        pair = widths.keys.vector(self.key_dim, "head_dim") + widths.values.vector(self.value_dim, "head_dim")
        return _share("num_key_value_heads", self.heads, tp) * pair


@dataclass(frozen=True, slots=True)
class Cross:
    """Keys and values of the encoder's tokens: none for a token that is generated."""

    heads: int
    head_dim: int
    kind: str = "cross_attention"

    def token_bytes(self, widths: Widths, tp: int) -> int:
        """Bytes of one token of the encoder on one of tp ranks."""
        pair = widths.keys.vector(self.head_dim, "head_dim") + widths.values.vector(self.head_dim, "head_dim")
        return _share("num_key_value_heads", self.heads, tp) * pair


@dataclass(frozen=True, slots=True)
class Latent:
    """One compressed vector for all heads, on every rank whole. index: elements of the indexer's key, 0 without."""

    rank: int
    rope: int
    index: int = 0
    kind: str = "latent_attention"
    span: int | None = None

    def token_bytes(self, widths: Widths, tp: int) -> int:
        """Bytes of one token on every rank. The indexer's keys are fp8 with one fp32 scale for 128, in any format."""
        if widths.keys != widths.values:
            raise KvError("dtype: latent attention has one vector, which cannot be of two formats")
        if self.index % 128:
            raise KvError(f"index_head_dim: {self.index} elements are no multiple of 128, the block of its scales")
        return widths.keys.latent_vector(self.rank, self.rope) + self.index + self.index // 128 * 4


@dataclass(frozen=True, slots=True)
class Recurrent:
    """States of a fixed size: the last `depth` inputs of a convolution, and a matrix of `state` elements.

    heads: what tensor parallelism splits; every one of them has to come out even. channels: of the convolution, without
    those of the `groups` that every rank needs whole, `group_channels` each.
    """

    kind: str
    heads: tuple[int, ...]
    channels: int
    depth: int
    state: int
    groups: int = 0
    group_channels: int = 0

    def sequence_bytes(self, widths: Widths, tp: int) -> int:
        """Bytes of one sequence on one of tp ranks."""
        for count in self.heads:
            if count % tp:
                raise KvError(f"tp: the {count} heads or channels of {self.kind} cannot be split over {tp} ranks")
        if self.groups > tp and self.groups % tp:
            raise KvError(f"tp: the {self.groups} groups of {self.kind} cannot be split over {tp} ranks")
        groups = self.groups if self.groups % tp == 0 else tp
        channels = (self.channels + groups * self.group_channels) // tp
        return channels * self.depth * widths.conv + self.state // tp * widths.ssm


Part = Attention | Cross | Latent | Recurrent
Layer = tuple[Part, ...]


def _share(field: str, heads: int, tp: int) -> int:
    if heads % tp and tp % heads:
        raise KvError(f"{field}: {heads} heads cannot be split over {tp} ranks, nor copied to them evenly")
    return max(1, heads // tp)
