"""Canonical names of activation functions, from the names that configurations use.

GELU by the error function and GELU by tanh are different functions and keep different names. It
knows no torch: `kernels.activation` holds the functions.
"""

from __future__ import annotations

from cenote.errors import ModelLoadError

# Hugging Face's `hidden_act` and its relatives.
_HF_NAMES: dict[str, str] = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "geglu": "gelu_erf",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu6": "relu6",
    "leaky_relu": "leaky_relu",
    "mish": "mish",
    "hardswish": "hardswish",
    "silu": "silu",
    "swish": "silu",
    "swiglu": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "linear": "identity",
}

# Classes of torch.nn.modules that sentence-transformers saves by their import path.
_TORCH_CLASSES: dict[str, str] = {
    "Identity": "identity",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "ReLU": "relu",
    "GELU": "gelu_erf",
    "SiLU": "silu",
    "Mish": "mish",
    "Hardswish": "hardswish",
    "LeakyReLU": "leaky_relu",
    "ELU": "elu",
    "SELU": "selu",
    "Softplus": "softplus",
    "ReLU6": "relu6",
    "Softmax": "softmax",
}


def from_hf(name: str) -> str:
    """The canonical name of `hidden_act: name`. Raises `ModelLoadError` where it is unknown."""
    try:
        return _HF_NAMES[name]
    except KeyError:
        raise ModelLoadError(
            f"Unknown activation {name!r} in config.json. Known: {sorted(_HF_NAMES)}."
        ) from None


def from_class_path(path: object, *, where: str) -> str:
    """The canonical name of an activation class such as `torch.nn.modules.activation.Tanh`.

    Only classes of torch.nn are known: a path to anything else would be code from a model
    repository, which never runs. `where` is the file and the key, for the error.
    """
    if isinstance(path, str) and path.startswith("torch.nn."):
        name = _TORCH_CLASSES.get(path.rpartition(".")[2])
        if name is not None:
            return name
    raise ModelLoadError(
        f"{where}: activation {path!r} is not supported; only these classes of torch.nn.modules "
        f"are: {sorted(_TORCH_CLASSES)}."
    )
