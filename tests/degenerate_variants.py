"""Corrupted answers made from healthy ones, kind by kind, for measuring recall.

Each maker takes a random generator, a healthy answer and its prompt, and returns the arguments of
an `AnswerView` that a fault of that kind could have left.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

Maker = Callable[[random.Random, str, str], dict[str, Any]]
_WORD = re.compile(r"\S+|\n")


def _words(text: str) -> list[str]:
    return text.split()


_SCRIPTS = {
    "cyrillic": _words("привет сколько осталось яблок давайте проверим ответ число всего"),
    "han": _words("所以 答案 是 多少 我们 计算 剩下 的 数量 一共"),
    "arabic": _words("الجواب هو عدد التفاح الكلي نحسب"),
    "devanagari": _words("उत्तर है कुल संख्या सेब"),
    "hangul": _words("정답은 모두 사과가 남은 개수"),
    "latin": _words(
        "ungs tagg orbtul kunde vrell nosk ederi quilm strop ziva lant mente øre elozo"
    ),
    "code": _words(r"QFile }} ]); ::begin getAttr _FILL italicstyle </div> \x0 pQ ORELSE"),
}
_SPECIAL = _words(
    "<|im_end|> <|endoftext|> <|eot_id|> </s> <pad> [PAD] <unk> <|user|> <｜end▁of▁sentence｜> "
    "<end_of_turn> <extra_id_0> [gMASK] <0x0A> [INST] <unused7> <|reserved_special_token_3|>"
)


def _tokens(text: str) -> list[str]:
    return _WORD.findall(text)


def _joined(tokens: list[str]) -> str:
    return " ".join(tokens).replace(" \n ", "\n")


def loop(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """A cycle of 1 to 40 words with any onset, cut by the budget."""
    tokens = _tokens(text)
    period = rng.choice([1, 1, 2, 3, 4, 5, 7, 10, 14, 20, 28, 40])
    onset = rng.randrange(0, len(tokens))
    unit = (tokens[onset:] + tokens)[:period]
    size = max(24 // max(1, len(" ".join(unit))) + 1, rng.randint(6, 30), 0)
    size = size if period < 14 else rng.randint(4, 8)
    body = tokens[:onset] + unit * size + unit[: rng.randint(0, period - 1)]
    return {"text": _joined(body), "finish_reason": "length"}


def glued_loop(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """A piece without its space, over and over."""
    piece = rng.choice(
        ["lock", "ing", "(tmp)", "资料", "ав", "::", "!", "?", "ß", "_x", "00", "。"]
    )
    onset = rng.randrange(0, len(text))
    return {"text": text[:onset] + piece * rng.randint(30, 120), "finish_reason": "length"}


def digits(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """Digits without end."""
    unit = rng.choice(["0", "9", "12", "0.", "1 ", "1234567890", "3, "])
    return {
        "text": text[: rng.randrange(40)] + unit * rng.randint(60, 200),
        "finish_reason": "length",
    }


def blank(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """Blanks, line ends or invisible characters."""
    unit = rng.choice(
        [" ", "\n", "\t", "\u200b", "\n ", "            \n", "\u3000", "\ufeff", "\r\n"]
    )
    return {
        "text": text[: rng.randrange(60)] + unit * rng.randint(40, 200),
        "finish_reason": "length",
    }


def special(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """Special tokens of any tokenizer, once or in a row."""
    token = rng.choice(_SPECIAL) * rng.choice([1, 1, 2, 5])
    at = rng.choice([0, len(text), rng.randrange(len(text))])
    return {"text": text[:at] + token + text[at:], "finish_reason": "stop"}


def undecoded(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """Vocabulary symbols in place of blanks."""
    way = rng.choice(["Ġ", "▁", "##"])
    if way == "##":
        return {"text": re.sub(r"([a-z]{3})([a-z]+)", r"\1 ##\2", text), "finish_reason": "stop"}
    return {"text": text.replace(" ", way).replace("\n", "Ċ"), "finish_reason": "stop"}


def mojibake(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """Lost or misread bytes."""
    tokens = _tokens(text)
    bad = rng.choice(
        ["\ufffd\ufffd", "â€™s", "Ã©", "\x00\x01", "\x03", "锟斤拷", "\udce2\udc80", "Â£"]
    )
    for _ in range(rng.randint(2, 5)):
        tokens.insert(rng.randrange(len(tokens)), bad)
    return {"text": _joined(tokens), "finish_reason": "stop"}


def doubled(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """Every few tokens one is emitted again."""
    rate = rng.choice([0.06, 0.1, 0.2, 0.4])
    tokens = _tokens(text)
    out = [copy for token in tokens for copy in [token] * (1 + (rng.random() < rate))]
    out = out if len(out) > len(tokens) else [tokens[0], *tokens]
    return {"text": _joined(out), "finish_reason": "stop"}


def redrafted(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """Groups of k tokens emitted again at some steps."""
    size, tokens, out = rng.randint(2, 5), _tokens(text), []
    for at in range(0, len(tokens), size + 1):
        group = tokens[at : at + size + 1]
        out += group + (group[:size] if not at or rng.random() < 0.35 else [])
    return {"text": _joined(out), "finish_reason": "stop"}


def dropped(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """About every fifth token is lost."""
    rate = rng.choice([0.15, 0.25, 0.35])
    return {
        "text": _joined([token for token in _tokens(text) if rng.random() > rate]),
        "finish_reason": "stop",
    }


def unspaced(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """All blanks lost."""
    return {"text": re.sub(r"[ \n]", "", text), "finish_reason": "stop"}


def salad(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """Random pieces, of many scripts or of one."""
    pools = rng.choice([list(_SCRIPTS), ["latin", "code"], ["han", "latin", "code"]])
    words = [rng.choice(_SCRIPTS[rng.choice(pools)]) for _ in range(rng.randint(20, 90))]
    return {"text": " ".join(words), "finish_reason": "length"}


def shuffled(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """Tokens out of order: all, neighbours swapped, or backwards."""
    tokens, way = text.split(), rng.randrange(3)
    if way == 0:
        rng.shuffle(tokens)
    elif way == 1:
        tokens.reverse()
    else:
        for at in range(0, len(tokens) - 1, 2):
            if rng.random() < 0.7:
                tokens[at], tokens[at + 1] = tokens[at + 1], tokens[at]
    return {"text": " ".join(tokens), "finish_reason": "stop"}


def switched(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """Words of another script inside the answer."""
    tokens = _tokens(text)
    pool = _SCRIPTS[rng.choice(["cyrillic", "han", "arabic", "devanagari", "hangul"])]
    for _ in range(rng.randint(2, 6)):
        tokens.insert(rng.randrange(len(tokens)), rng.choice(pool))
    return {"text": _joined(tokens), "finish_reason": "stop"}


def counter(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """A frame whose number counts on."""
    frame = rng.choice(
        ["Step {}: the answer is {}. ", "{}. So there are {} left.\n", "Wait, it is {} or {}. "]
    )
    first, step = rng.randrange(50), rng.choice([1, 1, 2, 3])
    lines = [
        frame.format(first + n * step, first + n * step + 1) for n in range(rng.randint(14, 70))
    ]
    return {"text": text[: rng.randrange(80)] + "\n" + "".join(lines), "finish_reason": "length"}


def cut_words(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """Ends of words are lost."""
    rate = rng.choice([0.3, 0.5])
    return {
        "text": re.sub(
            r"[a-z]{5,}", lambda m: m[0][: rng.randint(2, 4)] if rng.random() < rate else m[0], text
        ),
        "finish_reason": "stop",
    }


def echo(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """The question comes back as the answer."""
    question = prompt.removeprefix("Question: ").removesuffix("\nAnswer:")
    return {"text": question * rng.choice([1, 1, 2]), "finish_reason": "stop"}


def nan_ids(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """Id 0 from some step on."""
    at = rng.randrange(len(text) // 2)
    ids = [rng.randint(5, 9000) for _ in range(at // 4)] + [0] * rng.randint(16, 64)
    return {
        "text": text[:at] + rng.choice(["", "!" * 64]),
        "token_ids": ids,
        "finish_reason": "length",
    }


def nothing(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """No text, or a word of it."""
    return {"text": rng.choice(["", "\n", "  ", "The", "So", "To"]), "finish_reason": "stop"}


def streamed(rng: random.Random, text: str, prompt: str) -> dict[str, Any]:
    """Chunks that each repeat all before them, or the whole answer twice."""
    if rng.random() < 0.5:
        return {"text": text + text, "finish_reason": "stop"}
    words = text.split()[:9]
    return {
        "text": " ".join(" ".join(words[: n + 1]) for n in range(len(words))),
        "finish_reason": "stop",
    }


MAKERS: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (
        loop, glued_loop, digits, blank, special, undecoded, mojibake, doubled, redrafted, dropped,
        unspaced, salad, shuffled, switched, counter, cut_words, echo, nan_ids, nothing, streamed,
    )
}  # fmt: skip


def leaked(rng: random.Random, answers: list[str]) -> str:
    """Another request's whole answer."""
    return rng.choice(answers)
