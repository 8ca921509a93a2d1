"""Late interaction: which words of a document answered which words of the query.

python examples/colbert_explain.py FOLDER      a ColBERT model
"""

import sys

from cenote import LLM

QUERY = "Where did the Maya find water?"
DOCUMENTS = ["Maya people drew their water from sinkholes.", "Sourdough bread rises slowly."]

with LLM(sys.argv[1]) as llm:
    ranking = llm.rerank(QUERY, DOCUMENTS, explain=True)

for result in ranking.results:
    print(f"{result.relevance_score:.3f}  {result.document}")
    for match in result.matches or []:
        print(f"    {match.query_token:>12} → {match.document_token:<12} {match.similarity:.3f}")
