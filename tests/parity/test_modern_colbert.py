"""ColBERT over ModernBERT (GTE-ModernColBERT's form) and LFM2 against sentence-transformers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import MakeTiny

from cenote import LLM

QUERIES = ["who lives in Rome?", "x"]
DOCUMENTS = [
    "Ann lives in Rome, Bob (her brother) in Paris!",
    "漢字かな交じり文 🙂🙃 ... and more.",
    "b",
]
SETTINGS = {
    "model_type": "ColBERT",
    "query_prefix": "[Q] ",
    "document_prefix": "[D] ",
    "query_length": 24,
    "document_length": 60,
    "do_query_expansion": True,
    "attend_to_expansion_tokens": False,
    "skiplist_words": [".", ",", "!"],
    "similarity_fn_name": "MaxSim",
    "prompts": {},
}
BODIES: dict[str, dict[str, Any]] = {
    "ModernBertModel": {"local_attention": 16, "num_hidden_layers": 4},
    "Lfm2Model": {
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "layer_types": ["conv", "full_attention", "conv"],
        "block_multiple_of": 16,
    },
}


@pytest.mark.parametrize("architecture", BODIES)
def test_both_sides_and_their_scores_are_the_references(
    architecture: str, kernels: str, make_tiny: MakeTiny, tmp_path: Path
) -> None:
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules.dense import Dense

    body = make_tiny(architecture, "bpe", **BODIES[architecture])
    shutil.copytree(body, tmp_path, dirs_exist_ok=True)
    dense = Dense(32, 16, bias=False, activation_function=torch.nn.Identity())
    dense.linear.weight.data = torch.randn(16, 32, generator=torch.Generator().manual_seed(5))
    (tmp_path / "1_Dense").mkdir()
    dense.save(str(tmp_path / "1_Dense"))
    kept = {"in_features": 32, "out_features": 16, "bias": False}
    kept["activation_function"] = "torch.nn.modules.linear.Identity"
    (tmp_path / "1_Dense" / "config.json").write_text(json.dumps(kept))
    names = ["sentence_transformers.models.Transformer", "pylate.models.Dense.Dense"]
    modules = [
        {"idx": index, "name": str(index), "path": ["", "1_Dense"][index], "type": name}
        for index, name in enumerate(names)
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(SETTINGS))
    reference = MultiVectorEncoder(str(tmp_path), device="cpu")
    with LLM(str(tmp_path), dtype="float32", kernels=kernels) as llm:  # type: ignore[arg-type]
        for texts, side in ((QUERIES, "query"), (DOCUMENTS, "document")):
            expected = getattr(reference, f"encode_{side}")(texts, convert_to_numpy=True)
            found = llm.encode(texts, task="token_embed", input_type=side)
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(ours.embeddings, theirs, atol=1e-5)
        scores = [item.score for item in llm.score(QUERIES[0], DOCUMENTS)]
    encoded = reference.encode_query(QUERIES[:1]), reference.encode_document(DOCUMENTS)
    theirs = reference.similarity(*encoded).cpu().numpy()[0]
    np.testing.assert_allclose(scores, theirs, rtol=1e-5)
