"""What is asked of the transformers library: its classes, and a network read from a folder.

The only importer of the library, and only when a model needs it: it is an optional dependency. Code
of a model's repository never runs. It knows nothing of batches.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.errors import ModelLoadError
from cenote.loader.checkpoint import open_checkpoint

_INSTALL = "pip install 'cenote[reference]'"

# Part of a checkpoint that our poolers take the place of.
_UNUSED = ("pooler.", "sequence_summary.")

# Families with a causal language model that read both ways all the same.
_BOTH_WAYS = frozenset({"xlnet"})


def version() -> str:
    """The library's version."""
    import transformers

    return str(transformers.__version__)


def network_class(architecture: str) -> Any:
    """The library's class of this name.

    Raises ModelLoadError where the library isn't installed, or has no such text model.
    """
    try:
        import transformers
    except ImportError as error:
        raise ModelLoadError(
            f"Architecture {architecture!r} has no implementation of its own in Cenote and falls "
            f"back to transformers, which isn't installed: {_INSTALL}"
        ) from error
    network: Any = getattr(transformers, architecture, None)
    is_model = inspect.isclass(network) and issubclass(network, transformers.PreTrainedModel)
    if not is_model or "input_ids" not in inspect.signature(network.forward).parameters:
        raise ModelLoadError(
            f"Neither Cenote nor transformers {transformers.__version__} has a text model "
            f"{architecture!r}. Code of a model's repository is never run."
        )
    return network


def is_causal(network: Any) -> bool:
    """Whether a family reads from left to right only: it has a language model, not a masked one."""
    from transformers.models.auto import modeling_auto as auto

    kind = network.config_class.model_type
    return (
        kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        and kind not in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        and kind not in _BOTH_WAYS
    )


def is_encoder_decoder(network: Any) -> bool:
    """Whether a family has an encoder and a decoder."""
    from transformers.models.auto import modeling_auto as auto

    return network.config_class.model_type in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES


def read_network(config: ModelConfig, dtype: torch.dtype, *, headed: bool) -> nn.Module:
    """The network of a folder, in evaluation mode: the architecture's own or, if not `headed`, its
    body.

    Raises ModelLoadError for a folder that can't be read, and for tensors that are missing, left
    over or of a wrong shape.
    """
    import transformers

    folder = config.transformer_path
    with open_checkpoint(folder):
        pass  # What is wrong with the files is told by their names, which the library doesn't.
    transformers.utils.logging.disable_progress_bar()
    try:
        settings = transformers.AutoConfig.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
        served = (
            getattr(transformers, config.architecture)
            if headed
            else _body_class(config.architecture, settings)
        )
        network, report = served.from_pretrained(
            folder,
            config=settings,
            dtype=dtype,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # reported, and refused below by name
            local_files_only=True,
            output_loading_info=True,
        )
    except ModelLoadError:
        raise
    except Exception as error:  # the code of any family, and of what checks its configuration
        raise ModelLoadError(f"transformers can't load {folder}: {error}") from error
    _check(report, network, config.architecture, headed=headed)
    network.config.use_cache = False
    found: nn.Module = network.eval()
    return found


def _body_class(architecture: str, settings: Any) -> Any:
    """The class of what gives hidden states; of an encoder-decoder, its encoder."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    if architecture.endswith("Model") and not architecture.endswith("HeadModel"):
        found = getattr(transformers, architecture)
    else:
        found = transformers.AutoModel._model_mapping[type(settings)]
    if not settings.is_encoder_decoder or found.__name__.endswith("EncoderModel"):
        return found
    encoder = auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES.get(settings.model_type)
    if encoder is None:
        raise ModelLoadError(
            f"{found.__name__} is an encoder-decoder, and transformers has no encoder of it alone: "
            "it gives no vectors."
        )
    return getattr(transformers, encoder)


def _check(report: Any, network: nn.Module, architecture: str, *, headed: bool) -> None:
    """Refuses a checkpoint that doesn't fit.

    A body may leave a head's tensors, and lack or leave what poolers take the place of.
    """
    missing, left = list(report["missing_keys"]), list(report["unexpected_keys"])
    if not headed:
        missing = [name for name in missing if not name.startswith(_UNUSED)]
        left = [name for name in left if not name.startswith(_UNUSED)]
    if type(network).__name__ != architecture:
        own = {name for name, _ in network.named_children()}
        left = [name for name in left if name.split(".")[0] in own]
    problems = [
        *(f"missing parameter: {name}" for name in sorted(missing)),
        *(f"unused tensor: {name}" for name in sorted(left)),
        *(f"wrong shape: {item[0]}" for item in report["mismatched_keys"]),
    ]
    if problems:
        raise ModelLoadError("The checkpoint does not fit the model:\n  " + "\n  ".join(problems))


def body_output(rows: Tensor) -> Any:
    """What a body gives to a head, of hidden states `[n, L, hidden]`."""
    from transformers.modeling_outputs import BaseModelOutputWithPooling

    return BaseModelOutputWithPooling(last_hidden_state=rows)
