"""The prompts that released rerankers were trained with, by the kind of model.

Each is the whole prompt, its special tokens included: a tokenizer adds none, and the model reads
its answer from the last token. They find `query`, `document` and, where given, `instruction`.
It knows no tokens. Sources: the models' own cards and code (Qwen3-Reranker, FlagEmbedding's
`FlagLLMReranker`, mxbai-rerank, llama-nemotron-rerank).
"""

from __future__ import annotations

_QWEN3 = (
    "<|im_start|>system\n"
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
    "<Instruct>: {{ instruction or instruct or 'Given a web search query, retrieve relevant "
    "passages that answer the query' }}\n"
    "<Query>: {{ query }}\n"
    "<Document>: {{ document }}<|im_end|>\n"
    "<|im_start|>assistant\n"
    "<think>\n\n</think>{{ '\\n\\n' }}"
)

_BGE_GEMMA = (
    "{{ bos_token }}A: {{ query }}\n"
    "B: {{ document }}\n"
    "{% if instruction %}{{ instruction }}{% else %}"
    "Given a query A and a passage B, determine whether the passage contains an answer to the "
    "query by providing a prediction of either 'Yes' or 'No'.{% endif %}"
)

_MXBAI_V2 = (
    "<|im_start|>system\n"
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n"
    "{% if instruction %}instruction: {{ instruction }}{{ '\\n' }}{% endif %}"
    "query: {{ query }}\n"
    "document: {{ document }}\n"
    "You are a search relevance expert who evaluates how well documents match search queries. For "
    "each query-document pair, carefully analyze the semantic relationship between them, then "
    "provide your binary relevance judgment (0 for not relevant, 1 for relevant).\n"
    "Relevance:<|im_end|>\n"
    "<|im_start|>assistant{{ '\\n' }}"
)

# One prompt for a query and all its passages, which arrive ready-made.
JINA_LISTWISE = (
    "<|im_start|>system\n"
    "You are a search relevance expert who can determine a ranking of the passages based on how "
    "relevant they are to the query. If the query is a question, how relevant a passage is depends "
    "on how well it answers the question. If not, try to analyze the intent of the query and "
    "assess how well each passage satisfies the intent. If an instruction is provided, you should "
    "follow the instruction when determining the ranking.<|im_end|>\n"
    "<|im_start|>user\n"
    "I will provide you with {{ count }} passages, each indicated by a numerical identifier. Rank "
    "the passages based on their relevance to query: {{ query }}\n"
    "{% if instruction %}<instruct>\n{{ instruction }}\n</instruct>{{ '\\n' }}{% endif %}"
    "{{ passages }}<query>\n"
    "{{ query }}{{ marker }}\n"
    "</query><|im_end|>\n"
    "<|im_start|>assistant\n"
    "<think>\n\n</think>{{ '\\n\\n' }}"
)

_NEMOTRON = "{{ bos_token }}question:{{ query }} \n \n passage:{{ document }}"

PROMPTS: dict[str, str] = {
    "qwen3": _QWEN3,
    "bge-gemma": _BGE_GEMMA,
    "mxbai-v2": _MXBAI_V2,
    "nemotron": _NEMOTRON,
}
