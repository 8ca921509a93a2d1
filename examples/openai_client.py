"""OpenAI's client, sync and async, against a running `cenote serve`.

python examples/openai_client.py http://localhost:8000
"""

import asyncio
import sys

from openai import AsyncOpenAI, OpenAI

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="none")

model = client.models.list().data[0].id
answer = client.embeddings.create(model=model, input=["one text", "another"])
print(model, len(answer.data), "vectors of", len(answer.data[0].embedding), "numbers")


async def many(texts: list[str]) -> int:
    """One request for each text, all at the same time."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as other:
        answers = await asyncio.gather(
            *(other.embeddings.create(model=model, input=text) for text in texts)
        )
    return sum(answer.usage.total_tokens for answer in answers)


print(asyncio.run(many([f"text number {n}" for n in range(20)])), "tokens in 20 requests")
