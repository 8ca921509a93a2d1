"""Orders documents by a query, with whichever scorer the model has."""

import sys

from cenote import LLM

QUERY = "Where did the Maya find water?"
DOCUMENTS = [
    "Sourdough bread rises slowly.",
    "Maya people drew their water from sinkholes.",
    "The Maya calendar counts days in twenties.",
]

# Any model that can score: an embedding model, a cross-encoder or a ColBERT model.
model = sys.argv[1] if len(sys.argv) > 1 else "minilm"

with LLM(model) as llm:
    print("scored by:", llm.score_kind)
    for result in llm.rerank(QUERY, DOCUMENTS, top_n=2).results:
        print(f"{result.relevance_score:.3f}  {result.document}")
