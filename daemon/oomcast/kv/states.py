"""The states of layers whose memory does not grow with the sequence: gated delta nets, Mamba 1 and 2, convolutions."""

from oomcast.kv import families
from oomcast.kv.fields import Fields, KvError
from oomcast.kv.layers import Recurrent


def recurrent(text: Fields, name: str, kind: str) -> Recurrent:
    """The state of a layer of this kind. Raises KvError where a dimension is missing or contradicts another."""
    if kind == "conv":
        hidden = text.count("conv_dim", "hidden_size")
        return Recurrent("conv", (hidden,), hidden, text.count("conv_L_cache") - 1, 0)
    if kind == "linear_attention":
        return _delta_net(text)
    if name in families.MAMBA1:
        return _mamba1(text)
    if name in families.MAMBA2:
        return _mamba2(text, name)
    raise KvError(f"layer_types: {kind!r} is not known for {name}")


def _delta_net(text: Fields) -> Recurrent:
    keys, values = text.count("linear_num_key_heads"), text.count("linear_num_value_heads")
    key_dim, value_dim = text.count("linear_key_head_dim"), text.count("linear_value_head_dim")
    return Recurrent(
        "linear_attention",
        (keys, values),
        channels=2 * keys * key_dim + values * value_dim,
        depth=text.count("linear_conv_kernel_dim") - 1,
        state=values * value_dim * key_dim,
    )


def _mamba1(text: Fields) -> Recurrent:
    inner = _inner(text)
    depth = text.count("mamba_d_conv", "conv_kernel") - 1
    return Recurrent("mamba", (inner,), inner, depth, inner * text.count("mamba_d_state", "state_size"))


def _mamba2(text: Fields, name: str) -> Recurrent:
    # Beside attention these short names belong to that.
    pure = name in families.PURE
    heads = text.count("num_heads") if pure else text.count("mamba_n_heads", "mamba_num_heads")
    state = text.count("state_size") if pure else text.count("mamba_d_state", "ssm_state_size")
    if pure:
        dim = text.count("head_dim")
    elif text.raw("mamba_d_head") == "auto":
        inner = _inner(text)
        if inner % heads:
            raise KvError(f"mamba_n_heads: {inner} channels are no multiple of {heads}")
        dim = inner // heads
    else:
        dim = text.count("mamba_d_head", "mamba_head_dim")
    return Recurrent(
        "mamba",
        (heads,),
        channels=heads * dim,
        depth=text.count("mamba_d_conv", "conv_kernel") - 1,
        state=heads * dim * state,
        groups=text.count("mamba_n_groups", "n_groups"),
        group_channels=2 * state,
    )


def _inner(text: Fields) -> int:
    """Channels of the mixer; intermediate_size is another thing where there are MLPs beside it."""
    if text.has("mamba_d_ssm"):
        return text.count("mamba_d_ssm")
    if text.has("mamba_expand"):
        return text.count("mamba_expand") * text.count("hidden_size")
    return text.count("intermediate_size")
