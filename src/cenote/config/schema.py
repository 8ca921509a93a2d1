"""What type each known field of config.json has: checked once, before anything is made of it.

A field that isn't known here is left alone. It knows no model and no tensor: whether numbers fit
the weights, and each other, is found where they meet.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from cenote.config import fields
from cenote.errors import ModelLoadError

# Far beyond any model, and small enough that building one without its weights takes no time.
MAX_LAYERS = 1024
MAX_WIDTH = 1 << 20
MAX_ROWS = (1 << 31) - 1  # ids and positions are int32

_LAYERS = (1, MAX_LAYERS)
_WIDTH = (1, MAX_WIDTH)
_ROWS = (1, MAX_ROWS)
_SIZE = (0, MAX_ROWS)
_ANY = (-1, MAX_ROWS)  # -1 is how some say that there is none

_INTEGERS: dict[str, tuple[int, int]] = {
    **dict.fromkeys((*fields.NUM_LAYERS, "num_hidden_groups", "inner_group_num"), _LAYERS),
    **dict.fromkeys(("moe_top_k", "global_attn_every_n_layers"), _LAYERS),
    **dict.fromkeys((*fields.HIDDEN_SIZE, *fields.NUM_HEADS, *fields.INTERMEDIATE_SIZE), _WIDTH),
    **dict.fromkeys(("head_dim", "d_kv", "num_key_value_heads", "num_kv_heads"), _WIDTH),
    **dict.fromkeys(
        ("embedding_size", "num_experts", "lora_rank", "conv_L_cache", "conv_groups"), _WIDTH
    ),
    **dict.fromkeys(("num_labels", "relative_attention_num_buckets", "max_position"), _WIDTH),
    **dict.fromkeys(("vocab_size", "sliding_window_pattern"), _ROWS),
    **dict.fromkeys(("type_vocab_size", "task_type_vocab_size", "pad_token_id"), _SIZE),
    **dict.fromkeys(("conv_kernel_size", "moe_every_n_layers", "local_attention"), _SIZE),
    **dict.fromkeys(("max_window_layers", "step_tag_id"), _SIZE),
    **dict.fromkeys((*fields.POSITIONS, "position_buckets", "max_relative_positions"), _ANY),
    **dict.fromkeys(("original_max_position_embeddings", "sliding_window"), _ANY),
}
_NUMBERS = frozenset(
    {
        *fields.NORM_EPS,
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "global_rope_theta",
        "local_rope_theta",
        "lora_alpha",
        "query_pre_attn_scalar",
        "rope_local_base_freq",
        "rope_theta",
        "rotary_emb_base",
        "rotary_emb_fraction",
        "rotary_scaling_factor",
        "partial_rotary_factor",
        "temperature",
    }
)
_FLAGS = frozenset(
    {
        "attention_bias",
        "classifier_bias",
        "conv_bias",
        "decoder_bias",
        "is_causal",
        "is_matryoshka",
        "mlp_bias",
        "norm_bias",
        "position_biased_input",
        "relative_attention",
        "rotary_emb_interleaved",
        "scale_attn_by_inverse_layer_idx",
        "scale_attn_weights",
        "share_att_key",
        "talking_head",
        "tie_word_embeddings",
        "use_flash_attn",
        "use_sliding_window",
        "use_task_id",
    }
)
_TEXTS = frozenset(
    {
        *fields.ACTIVATION,
        "classifier_pooling",
        "clf_pooling",
        "conv_act",
        "feed_forward_type",
        "model_type",
        "norm_rel_ebd",
        "pooler_hidden_act",
        "pooling",
        "position_embedding_type",
    }
)
_LISTS = frozenset(
    {"architectures", "full_attn_idxs", "layer_types", "lora_adaptations", "returned_token_ids"}
)
_LISTED = frozenset({"pos_att_type"})
_MAPS = frozenset({"auto_map", "rope_parameters", "rope_scaling", "task_instructions"})


# Null means that there is none, which is not what their absence means.
_NULL_SPEAKS = frozenset({"sliding_window", "attn_logit_softcapping"})


def checked(hf: fields.Raw) -> dict[str, Any]:
    """A config.json without the known fields that are null: those are absent.

    Raises `ModelLoadError` that names the first known field with a value of another type, or
    beyond all bounds.
    """
    found = dict(hf)
    for name, value in hf.items():
        known = _check(name, value)
        if value is None and known and name not in _NULL_SPEAKS:
            del found[name]
    if isinstance(nested := hf.get("text_config"), Mapping):
        found["text_config"] = checked(nested)
    return found


def _check(name: str, value: Any) -> bool:
    """Whether the field is known, with a value that is null or right."""
    if name in _INTEGERS:
        if value is not None:
            _check_integer(name, value, *_INTEGERS[name])
        return True
    for names, kind, fits in _KINDS:
        if name in names:
            if value is not None and not fits(value):
                raise ModelLoadError(
                    f"config.json: {name} must be {kind}, not {reprlib.repr(value)}."
                )
            return True
    return False


def _check_integer(name: str, value: Any, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        kind = "a positive integer" if low == 1 else f"an integer of at least {low}"
        raise ModelLoadError(f"config.json: {name} must be {kind}, not {reprlib.repr(value)}.")
    if value > high:
        raise ModelLoadError(f"config.json: {name} must be at most {high}, not {value}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_list(value: object, kinds: tuple[type, ...] = (str, int)) -> bool:
    return isinstance(value, list) and all(isinstance(item, kinds) for item in value)


_KINDS: tuple[tuple[frozenset[str], str, Callable[[Any], bool]], ...] = (
    (_NUMBERS, "a finite number", _is_number),
    (_FLAGS, "true or false", lambda value: value in (0, 1)),
    (_TEXTS, "a string", lambda value: isinstance(value, str)),
    (_LISTS, "a list of names or numbers", _is_list),
    (
        _LISTED,
        "a string or a list of them",
        lambda value: isinstance(value, str) or _is_list(value, (str,)),
    ),
    (_MAPS, "a map", lambda value: isinstance(value, Mapping)),
)
