"""Class probabilities of texts, with a sequence classification model.

python examples/classify.py FOLDER
"""

import sys

from cenote import LLM

with LLM(sys.argv[1]) as llm:
    for result in llm.classify(["I loved it.", "Never again."]):
        shares = ", ".join(
            f"{name} {share:.2f}" for name, share in zip(result.labels, result.probs, strict=True)
        )
        print(result.label, f"({shares})")
