"""Texts or token ids in, class scores with the model's labels out. It knows nothing of HTTP."""

from __future__ import annotations

from cenote.engine.messages import EngineOutput
from cenote.outputs import Classification
from cenote.processors import results
from cenote.processors.inputs import ClassifyInput
from cenote.processors.pairs import mixed_prompts, typed_params
from cenote.processors.prepare import Preparer, per_prompt
from cenote.processors.prepared import Prepared
from cenote.processors.prompts import prefix_for
from cenote.processors.zero_shot import zero_shot


def classify(preparer: Preparer, request: ClassifyInput) -> Prepared[list[Classification]]:
    """Prepares a request for class scores.

    Softmax or sigmoid is the pooler's choice, by the model's problem type; a multi-label model's
    result lists every label's own probability beside the highest one's name. Labels of the
    request's own are another matter: see `zero_shot`.
    """
    if request.candidate_labels is not None:
        return zero_shot(preparer, request)
    options = request.options
    params = preparer.params("classify", options)
    if request.pairs is None:
        prefix = prefix_for(preparer.config, options)
        prompts = preparer.tokenize(request.prompts, options, prefix=prefix)
        each = per_prompt(params, prompts)
    else:
        prompts = mixed_prompts(preparer, request, request.pairs)
        each = [typed_params(params, prompt) for prompt in prompts]
    requests = preparer.requests(prompts, each, options)
    labels = preparer.config.labels

    def finish(outputs: list[EngineOutput]) -> list[Classification]:
        return [
            results.classification(prompt, output, labels)
            for prompt, output in zip(prompts, outputs, strict=True)
        ]

    return Prepared(requests, finish)
