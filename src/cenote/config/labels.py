"""A classifier's labels and problem type, as config.json states them.

It knows names only; the activation that follows from a problem type is the pooler's business.
"""

from __future__ import annotations

from cenote.config.fields import Raw
from cenote.errors import ModelLoadError

PROBLEM_TYPES = ("regression", "single_label_classification", "multi_label_classification")

# Hugging Face leaves id2label out of a saved configuration that has its default of two labels.
_DEFAULT_LABELS = 2


def labels(hf: Raw, architecture: str) -> tuple[str, ...]:
    """Label names in id order; empty for an architecture without a classifier.

    Raises `ModelLoadError` where id2label has gaps or disagrees with num_labels.
    """
    if architecture.endswith("ForRewardModel"):
        return ("reward",)
    if not architecture.endswith(("Classification", "RewardModel")):
        return ()
    names = hf.get("id2label")
    count = hf.get("num_labels")
    if not names:
        return tuple(f"LABEL_{i}" for i in range(_DEFAULT_LABELS if count is None else count))
    try:
        by_id = {int(key): str(value) for key, value in names.items()}
    except (AttributeError, ValueError):
        raise ModelLoadError(f"config.json: id2label {names!r} is not a map of ids.") from None
    if sorted(by_id) != list(range(len(by_id))):
        raise ModelLoadError(f"config.json: id2label has gaps: {sorted(by_id)}.")
    if count is not None and count != len(by_id):
        raise ModelLoadError(
            f"config.json: num_labels is {count}, but id2label has {len(by_id)} labels."
        )
    return tuple(by_id[i] for i in range(len(by_id)))


def problem_type(hf: Raw) -> str | None:
    """`problem_type`, checked; None where it is absent."""
    value = hf.get("problem_type")
    if value is not None and value not in PROBLEM_TYPES:
        raise ModelLoadError(
            f"config.json: problem_type {value!r} is unknown; known: {', '.join(PROBLEM_TYPES)}."
        )
    return value
