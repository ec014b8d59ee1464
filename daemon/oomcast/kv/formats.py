"""How elements of a cache are stored: bytes of a vector of one head, with the scales that lie beside it."""

from dataclasses import dataclass

from oomcast.kv.fields import KvError

LATENT_RANK, LATENT_ROPE = 512, 64
"""The only shape that the packed formats of latent attention exist for."""


@dataclass(frozen=True, slots=True)
class Format:
    """block elements are stored in block_bytes. scale: bytes more for each head of each token. latent: bytes of one
    token of one layer, for formats that only latent attention has; 0 for the others."""

    name: str
    block: int
    block_bytes: int
    scale: int = 0
    latent: int = 0

    def vector(self, elements: int, field: str) -> int:
        """Bytes of one head's vector. Raises KvError, naming `field`, where it does not come out even."""
        if self.latent:
            raise KvError(f"dtype: {self.name} is for latent attention (kv_lora_rank) only")
        if elements % self.block:
            raise KvError(f"{field}: {elements} elements are no multiple of {self.block}, the block of {self.name}")
        return elements // self.block * self.block_bytes + self.scale

    def latent_vector(self, rank: int, rope: int) -> int:
        """Bytes of one token in one layer of latent attention."""
        if self.scale:
            raise KvError(f"dtype: {self.name} has a scale for each head, latent attention has no heads in its cache")
        if not self.latent:
            return self.vector(rank + rope, "kv_lora_rank")
        if (rank, rope) != (LATENT_RANK, LATENT_ROPE):
            raise KvError(
                f"kv_lora_rank: {self.name} is defined for {LATENT_RANK} + {LATENT_ROPE} elements, not {rank} + {rope}"
            )
        return self.latent


FORMATS = {
    found.name: found
    for found in (
        Format("fp32", 1, 4),
        Format("bf16", 1, 2),
        Format("fp16", 1, 2),
        Format("fp8", 1, 1),
        Format("int8", 1, 1),
        # One fp32 scale, or a scale and a zero point of 16 bits: engines differ, the bytes do not.
        Format("fp8_per_token_head", 1, 1, scale=4),
        Format("int8_per_token_head", 1, 1, scale=4),
        Format("int4", 2, 1, scale=4),
        Format("fp4", 16, 9),  # two in a byte, and one fp8 scale for 16
        Format("fp8_ds_mla", 1, 1, latent=656),  # 512 fp8, 4 scales of fp32, 64 of 16 bits
        Format("nvfp4_ds_mla", 1, 1, latent=352),  # 256 of two fp4, 32 scales of fp8, 64 fp8
        Format("q8_0", 32, 34),
        Format("q5_1", 32, 24),
        Format("q5_0", 32, 22),
        Format("q4_1", 32, 20),
        Format("q4_0", 32, 18),
        Format("iq4_nl", 32, 18),
    )
}
_ALIASES = {
    "float32": "fp32",
    "f32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "f16": "fp16",
    "half": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_inc": "fp8",
    "nvfp4": "fp4",
    "fp4_e2m1": "fp4",
}


def format_named(name: str, field: str = "dtype") -> Format:
    """By its name here or an engine's. Raises KvError for one that is not known."""
    found = FORMATS.get(_ALIASES.get(name, name))
    if found is None:
        raise KvError(f"{field}: {name[:40]!r} is not known; known are auto, {', '.join(FORMATS)}")
    return found
