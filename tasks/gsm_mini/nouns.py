"""The compact vocabulary: people, things, containers, animals and units of measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """A countable noun with both of its forms."""

    one: str
    many: str

    def form(self, count: int) -> str:
        """The form that goes with `count`: singular for exactly 1."""
        return self.one if count == 1 else self.many

    def of(self, count: int) -> str:
        """`count` and the matching form, as in "3 apples"."""
        return f"{count} {self.form(count)}"

    @property
    def a(self) -> str:
        """The singular with its indefinite article, as in "an egg"."""
        return f"{'an' if self.one[0] in 'aeiou' else 'a'} {self.one}"


@dataclass(frozen=True)
class Person:
    """A first name and the pronouns that go with it."""

    name: str
    he: str
    his: str

    @property
    def He(self) -> str:
        """The subject pronoun at the start of a sentence."""
        return self.he.capitalize()


def _noun(one: str) -> Noun:
    return Noun(one, one + ("es" if one.endswith(("x", "ch", "s", "sh")) else "s"))


def _nouns(words: str) -> tuple[Noun, ...]:
    return tuple(_noun(word) for word in words.split())


PEOPLE: tuple[Person, ...] = tuple(
    Person(name, he, his)
    for names, he, his in (
        ("Ann Mia Eva Lily Rosa Kate Nora Ruth Sara Tina Jane Zoe", "she", "her"),
        ("Ben Tom Max Sam Leo Dan Ali Paul Mark Jack Hugo Omar", "he", "his"),
    )
    for name in names.split()
)

THINGS = _nouns("apple pear plum egg cookie muffin card sticker marble pen pencil book shell bead")
GOODS = _nouns("book ball cap shirt toy game plant mug")
FINDS = _nouns("shell card marble bead sticker")
FRUIT = _nouns("apple pear plum lemon")
BAKED = _nouns("cookie muffin roll pie")
CONTAINERS = _nouns("box bag basket jar tray")
ANIMALS = _nouns("hen cow goat horse duck")
PETS = _nouns("dog cat rabbit")
SPARE = _nouns("hat lamp kite cup clock")

BUS, COIN = _nouns("bus coin")
POINT, PAGE, CHILD, TILE, PIECE, LESSON, PACK = (
    _noun("point"),
    _noun("page"),
    Noun("child", "children"),
    _noun("tile"),
    _noun("piece"),
    _noun("lesson"),
    _noun("pack"),
)
MINUTE, HOUR, DAY, WEEK, YEAR = _nouns("minute hour day week year")
METER, LITER, GRAM, CENT = (
    _noun("meter"),
    _noun("liter"),
    _noun("gram"),
    _noun("cent"),
)
KM = Noun("km", "km")
CM = Noun("cm", "cm")
SQUARE_METER = _noun("square meter")
