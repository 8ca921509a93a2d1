"""Classes that a request names, scored by a model of natural language inference (NLI).

Each label becomes a hypothesis, and its score is how surely the text entails it. Source: Yin et al.
2019 (arXiv:1909.00161); transformers, `ZeroShotClassificationPipeline`. It knows nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cenote.engine.messages import EngineOutput
from cenote.errors import InvalidRequest
from cenote.outputs import Classification
from cenote.processors.inputs import ClassifyInput
from cenote.processors.pairs import pair_prompts, typed_params
from cenote.processors.prepare import Preparer
from cenote.processors.prepared import Prepared
from cenote.processors.prompts import prefix_for
from cenote.processors.validation import check_task, check_type

MAX_LABELS = 1000

Logits = NDArray[np.float32]


def zero_shot(preparer: Preparer, request: ClassifyInput) -> Prepared[list[Classification]]:
    """Prepares one pair for each text and label.

    A result's `probs` are in the request's order of labels: they sum to 1, or with `multi_label`
    (or a single label) each stands alone, against contradiction. A cut takes from the text only.
    """
    options = request.options
    check_task("classify", preparer.supported_tasks)
    labels = _checked_labels(request)
    yes, no = _entailment(preparer.config.labels)
    if options.use_activation is not None:
        raise InvalidRequest(
            "use_activation has no meaning with candidate_labels.", param="use_activation"
        )
    params = preparer.params("classify", replace(options, use_activation=False))
    prefix = prefix_for(preparer.config, options)
    texts = [prefix + text for text in _texts(request)]
    hypotheses = [request.hypothesis_template.replace("{}", label) for label in labels]
    prompts = pair_prompts(
        preparer,
        [text for text in texts for _ in hypotheses],
        hypotheses * len(texts),
        options,
        param="input",
        strategy="only_first",
    )
    for index, prompt in enumerate(prompts):
        place = f"input[{index // len(labels)}] with its hypothesis"
        preparer.check_length(prompt, preparer.max_model_len, place)
    requests = preparer.requests(
        prompts, [typed_params(params, prompt) for prompt in prompts], options
    )
    alone = request.multi_label or len(labels) == 1

    def finish(outputs: list[EngineOutput]) -> list[Classification]:
        results = []
        for start in range(0, len(prompts), len(labels)):
            own = slice(start, start + len(labels))
            logits = np.stack([output.array().reshape(-1) for output in outputs[own]])
            probs = _softmax(logits[:, [no, yes]])[:, 1] if alone else _softmax(logits[:, yes])
            results.append(
                Classification(
                    probs=probs,
                    label=labels[int(probs.argmax())],
                    labels=labels,
                    prompt_tokens=sum(len(prompt.token_ids) for prompt in prompts[own]),
                    truncated=any(prompt.truncated for prompt in prompts[own]),
                )
            )
        return results

    return Prepared(requests, finish)


def _checked_labels(request: ClassifyInput) -> tuple[str, ...]:
    labels = request.candidate_labels or ()
    for label in labels:
        if not isinstance(label, str) or not label.strip():
            raise InvalidRequest(
                f"candidate_labels must be non-empty strings, not {label!r}.",
                param="candidate_labels",
            )
    if isinstance(labels, str) or not 0 < len(labels) <= MAX_LABELS:
        raise InvalidRequest(
            f"candidate_labels must be a list of 1 to {MAX_LABELS} labels.",
            param="candidate_labels",
        )
    if len(set(labels)) < len(labels):
        raise InvalidRequest("candidate_labels has a label twice.", param="candidate_labels")
    template = request.hypothesis_template
    check_type(request.multi_label, "multi_label", bool, "true or false")
    if not isinstance(template, str) or template.count("{}") != 1:
        raise InvalidRequest(
            f"hypothesis_template must have one {{}} for the label, not {template!r}.",
            param="hypothesis_template",
        )
    return tuple(labels)


def _entailment(labels: Sequence[str]) -> tuple[int, int]:
    """The columns of entailment (by its name) and, as the reference counts it, contradiction."""
    for index, label in enumerate(labels):
        if label.lower().startswith("entail"):
            return index, len(labels) - 1 if index == 0 else 0
    raise InvalidRequest(
        f"candidate_labels need an NLI model, with a label named entailment; this one has "
        f"{list(labels)}.",
        param="candidate_labels",
    )


def _texts(request: ClassifyInput) -> list[str]:
    if not request.prompts:
        raise InvalidRequest("You must pass at least one prompt.", param="input")
    if request.pairs is not None:
        raise InvalidRequest("candidate_labels need single texts, not pairs.", param="input")
    texts = [prompt for prompt in request.prompts if isinstance(prompt, str)]
    if len(texts) < len(request.prompts):
        raise InvalidRequest("candidate_labels need texts, not token ids.", param="input")
    return texts


def _softmax(logits: Logits) -> Logits:
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result: Logits = raised / raised.sum(axis=-1, keepdims=True)
    return result
