"""Owns what the workloads store: the same bytes for every engine, run after run."""

from __future__ import annotations

import functools
import os

#: The result of one small step: about 200 bytes as JSON.
STEP_RESULT: dict[str, object] = {"ok": True, "text": "x" * 170}

#: One conversation turn of W3: a user message, a model answer, a tool result. 10 KiB in all.
USER_BYTES, ANSWER_BYTES, TOOL_BYTES = 2048, 4096, 4096
TURN_BYTES = USER_BYTES + ANSWER_BYTES + TOOL_BYTES
#: One turn of W7: a model answer and a tool result.
EXCHANGE_BYTES = ANSWER_BYTES + TOOL_BYTES


@functools.cache
def _words() -> list[str]:
    import random  # not at the top: programs that measure their start-up need none of it

    return ["".join(random.Random(i).choices("etaoinshrdlucmfwyp", k=2 + i % 9)) for i in range(4000)]


def prose(size: int, seed: int) -> str:
    """Return `size` ASCII characters of word salad; it compresses about as well as English."""
    import random

    pick = random.Random(seed)
    lexicon = _words()
    words: list[str] = []
    length = 0
    while length <= size:
        word = pick.choice(lexicon)
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[:size]


def noise_text(size: int) -> str:
    """Return `size` hexadecimal characters of random bits, for payloads that compress to half at best."""
    return os.urandom(size // 2 + 1).hex()[:size]


def noise_bytes(size: int) -> bytes:
    """Return `size` random bytes."""
    return os.urandom(size)
