"""Embeds a few texts and finds the nearest one to a question, without a server."""

import numpy as np

from cenote import LLM

TEXTS = [
    "A cenote is a natural pit where groundwater lies open.",
    "Sourdough bread rises slowly.",
    "Maya people drew their water from sinkholes.",
]

with LLM("minilm") as llm:
    documents = np.stack([result.embedding for result in llm.embed(TEXTS)])
    question = llm.embed("Where did the Maya find water?")[0].embedding

# Vectors have length one, so a product is the cosine.
similarities = documents @ question
for similarity, text in sorted(zip(similarities, TEXTS, strict=True), reverse=True):
    print(f"{similarity:.3f}  {text}")
