"""Text of emitted tokens, and where it ends."""

from __future__ import annotations

from tokenizers import Tokenizer

from evalsuite.mini.sequence import Sequence


def byte_alphabet() -> dict[str, int]:
    """Byte of every character that byte-level BPE writes for it (GPT-2's printable stand-ins)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


class TokenBytes:
    """Bytes of every token id; special tokens have none."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        alphabet = byte_alphabet()
        special = set(tokenizer.get_added_tokens_decoder())
        self._bytes = [b""] * vocab_size
        for piece, token in tokenizer.get_vocab().items():
            if token not in special:
                self._bytes[token] = bytes(alphabet[c] for c in piece)

    def __getitem__(self, token: int) -> bytes:
        return self._bytes[token]


def advance_text(
    sequence: Sequence,
    tokens: list[int],
    margins: list[float],
    vocabulary: TokenBytes,
    eos: int | None,
) -> None:
    """Append emitted tokens one by one, up to a stop string, the end token or the budget.

    Tokens behind the end are dropped, so that the result does not depend on how many tokens a
    step emits.
    """
    request, known = sequence.request, len(sequence.output)
    pieces = b"".join([vocabulary[token] for token in tokens])
    ends = eos in tokens or sequence.emitted + len(tokens) >= request.max_tokens
    if not ends and _first_stop(sequence.output + pieces, known, request.stop) is None:
        sequence.tokens += tokens
        sequence.margins += margins
        sequence.output += pieces
        return
    for token, margin in zip(tokens, margins, strict=True):
        sequence.tokens.append(token)
        sequence.margins.append(margin)
        if token == eos:
            sequence.finish_reason = "stop"
            return
        known = len(sequence.output)
        sequence.output += vocabulary[token]
        cut = _first_stop(sequence.output, known, request.stop)
        if cut is not None:
            del sequence.output[cut:]
            sequence.finish_reason = "stop"
            return
        if sequence.emitted >= request.max_tokens:
            sequence.finish_reason = "length"
            return


def _first_stop(output: bytearray, known: int, stops: tuple[bytes, ...]) -> int | None:
    """Start of the first stop string that the bytes from `known` on complete."""
    found = [output.find(stop, max(0, known - len(stop) + 1)) for stop in stops if stop]
    return min((at for at in found if at >= 0), default=None)
