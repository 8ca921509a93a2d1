"""A tokenizer of the kind that XLM-RoBERTa has, trained here: no package ships one.

A Unigram model of Python's manual, which the workloads are made of, with pieces that no text has up
to the vocabulary's size. So texts become about as many tokens as for a real one, a look-up costs
the same, and ids lie at the table's beginning.
"""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from cenote.cli.workload import words

SPECIAL = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>"}
# Pieces that are learnt: about as many characters a token as XLM-RoBERTa's has in English.
LEARNT = 8000
# Log-probability of a piece that no text has.
NEVER = -30.0


def trained(size: int) -> PreTrainedTokenizerFast:
    """A tokenizer of `size` pieces."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=LEARNT,
        special_tokens=list(SPECIAL.values()),
        unk_token=SPECIAL["unk"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(words(), trainer)
    made: dict[str, Any] = json.loads(tokenizer.to_str())
    pieces = made["model"]["vocab"]
    pieces += [[f"<unused{at}>", NEVER] for at in range(len(pieces), size - 1)]
    pieces.append(["<mask>", 0.0])
    tokenizer = Tokenizer.from_str(json.dumps(made))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(token, at) for at, token in enumerate(SPECIAL.values())],
    )
    roles = {f"{role}_token": token for role, token in SPECIAL.items()}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token="<s>", sep_token="</s>", mask_token="<mask>", **roles
    )
