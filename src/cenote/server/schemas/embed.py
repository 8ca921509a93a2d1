"""Bodies of /v1/embeddings: OpenAI's, with what Jina's and Voyage's callers send there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, Self, cast

from pydantic import Field

from cenote.errors import InvalidRequest
from cenote.processors.inputs import EmbedInput, PoolingInput, PromptOptions, SparseOptions
from cenote.processors.long_input import late_chunking_of
from cenote.processors.quantize import Precision
from cenote.processors.registry import Processors
from cenote.server.encoding import Encoding, VectorType
from cenote.server.schemas.body import Answer, Item, ListAnswer
from cenote.server.schemas.inputs import SparseBody, input_config

OutputDType = Literal["float", "int8", "uint8", "binary", "ubinary"]


class HostedBody(SparseBody):
    """The fields by which hosted services ask for what OpenAI's API has no field for."""

    task: str | None = Field(
        None,
        description="Jina's name of input_type: retrieval.query, retrieval.passage, "
        "text-matching, classification, separation…",
    )
    embedding_type: VectorType | list[VectorType] | None = Field(
        None,
        description="Jina: the form of the vectors; for a list, embedding is an object with each.",
        examples=["binary"],
    )
    output_dtype: OutputDType | None = Field(
        None, description="Voyage: the number format of the vectors, also within base64."
    )
    output_dimension: int | None = Field(None, description="Voyage's name of dimensions.")
    truncate: bool | None = Field(
        None, description="Jina: true cuts inputs that are too long, like truncation."
    )
    truncation: bool | None = Field(
        None, description="Voyage: true cuts inputs that are too long; the answer tells which."
    )
    normalized: bool | None = Field(None, description="Jina's name of use_activation.")
    return_multivector: bool = Field(
        False, description="Jina: a vector for each token, under embeddings, in place of one."
    )
    late_chunking: bool = Field(
        False, description="Jina: encode all inputs as one text, then pool each input's tokens."
    )

    def resolved(self, processors: Processors) -> Self:
        """The body with every field under its usual name. Raises `InvalidRequest` for a clash."""
        body = super().resolved(processors)
        cuts = body.agreed("truncation", "truncate")
        fields: dict[str, Any] = {
            "input_type": body.agreed("input_type", "task"),
            "dimensions": body.agreed("dimensions", "output_dimension"),
            "use_activation": body.agreed("use_activation", "normalize", "normalized"),
        }
        if cuts and body.truncate_prompt_tokens is None:
            fields["truncate_prompt_tokens"] = -1
        given = [name for name in ("embedding_type", "output_dtype") if getattr(body, name)]
        if len(given) > 1:
            raise InvalidRequest("Give embedding_type or output_dtype, not both.", param=given[0])
        changed = {name: value for name, value in fields.items() if getattr(body, name) != value}
        return body.model_copy(update=changed) if changed else body

    def kinds(self) -> list[VectorType] | None:
        """The forms that an answer has side by side; None: one form, which `encoding` tells."""
        return self.embedding_type if isinstance(self.embedding_type, list) else None

    def precision(self) -> Precision:
        """The number format of the vectors."""
        wanted = self.output_dtype or self.embedding_type
        if isinstance(wanted, list) or wanted in (None, "float", "base64"):
            return "float32"
        return cast(Precision, wanted)

    def encoding(self) -> Encoding:
        """How the vectors go out; embedding_type base64 is encoding_format base64."""
        found = super().encoding()
        if self.kinds() is not None and found.is_raw:
            raise InvalidRequest(
                f"encoding_format {found.format} can't hold several embedding types.",
                param="embedding_type",
            )
        return replace(found, format="base64") if self.embedding_type == "base64" else found


class EmbeddingRequest(HostedBody):
    """OpenAI's embeddings request, with extensions."""

    model_config = input_config({"model": "minilm", "input": ["First text.", "Second text."]})

    return_sparse: bool = Field(
        False,
        description="Add each input's sparse vector, from the same forward pass. A model that has "
        "no other vectors then answers with an empty embedding.",
    )
    long_input: Literal["error", "chunk_mean"] = Field(
        "error",
        description="What becomes of a text over the model's length. chunk_mean: the mean of its "
        "parts' vectors, weighted by their tokens.",
    )
    chunk_size: int | None = Field(
        None, description="late_chunking of one input: a vector for each so many tokens."
    )
    spans: list[list[int]] | None = Field(
        None,
        description="late_chunking of one input: a vector for each [start, end) of its characters.",
        examples=[[[0, 12], [13, 40]]],
    )

    def to_input(self, request_id: str, adapter: str | None) -> EmbedInput:
        sparse = self.sparse()
        if not self.return_sparse and sparse != SparseOptions():
            raise InvalidRequest(
                "sparse_top_k, sparse_threshold and return_tokens need return_sparse.",
                param="return_sparse",
            )
        return EmbedInput(
            prompts=self.input,
            dimensions=self.dimensions,
            sparse=sparse if self.return_sparse else None,
            long_input=self.long_input,
            late_chunking=late_chunking_of(self.late_chunking, self.chunk_size, self.spans),
            options=self.options(request_id, adapter),
        )

    def to_token_input(self, options: PromptOptions) -> PoolingInput:
        """The request for a vector of each token in place of one. Raises `InvalidRequest`."""
        if self.return_sparse or self.late_chunking or self.long_input != "error":
            raise InvalidRequest(
                "return_multivector excludes return_sparse, late_chunking and long_input.",
                param="return_multivector",
            )
        return PoolingInput(
            prompts=self.input, task="token_embed", dimensions=self.dimensions, options=options
        )


class SparseVector(Answer):
    """Vocabulary ids and their weights, heaviest first, no zeros."""

    indices: list[int] = Field(examples=[[3007, 2605]])
    values: list[float] = Field(examples=[[2.79, 2.36]])
    tokens: list[str] | None = Field(None, description="With return_tokens.")


class EmbeddingItem(Item):
    """One input's vector."""

    object: Literal["embedding"]
    embedding: list[float] | str | dict[str, list[float] | str] | None = Field(
        None,
        description="Numbers, or base64 text; for several embedding types an object with each.",
        examples=[[0.01, -0.2, 0.3]],
    )
    embeddings: list[list[float]] | str | dict[str, list[list[float]] | str] | None = Field(
        None, description="With return_multivector: a vector for each token, in embedding's place."
    )
    sparse_embedding: SparseVector | None = Field(
        None, description="Extension: with return_sparse."
    )
    start: int | None = Field(
        None, description="Extension: with late_chunking, the first character of the vector's span."
    )
    end: int | None = Field(None, description="Extension: the character after the span.")


class EmbeddingResponse(ListAnswer):
    """OpenAI's embeddings answer; strict clients ignore the extensions."""

    data: list[EmbeddingItem]
