"""Measures: perimeter and area, and changes of unit."""

from __future__ import annotations

from gsm_mini.draw import Draw
from gsm_mini.nouns import CM, GRAM, METER, PIECE, SQUARE_METER, TILE
from gsm_mini.problem import Draft, Work, family


@family(check=lambda p: (p["l"] + p["b"] + p["l"] + p["b"] - p["gate"]) * p["price"])
def fence(d: Draw) -> Draft:
    """(2*(l + b) - gate) * price."""
    who = d.person()
    long, wide = d.sized(5, 15, 26), d.sized(4, 12, 22)
    gate, price = d.extra(2, 3, 5), d.sized(2, 6, 15)
    d.need(long > wide)
    w = Work()
    half = w.add("Two sides:", long, wide, unit=METER)
    rim = w.mul("Around:", half, 2, unit=METER)
    if gate:
        rim = w.sub("Without the gate", rim, gate, unit=METER)
    w.mul("It costs", rim, price, unit="$")
    facts = [
        f"{who.name} puts a fence around a garden that is {long} meters long and "
        f"{wide} meters wide.",
        f"One meter of fence costs ${price}.",
    ]
    if gate:
        facts.append(f"A gate of {gate} meters is there already and needs no fence.")
    ask = f"How many dollars does {who.name} pay for the fence?"
    return Draft(who, facts, ask, w, {"l": long, "b": wide, "gate": gate, "price": price})


@family(check=lambda p: sum(p["per"] for _ in range(p["l"] * p["b"] - p["c"] * p["e"])))
def floor_tiles(d: Draw) -> Draft:
    """(l*b - c*e) * per."""
    who = d.person()
    long, wide = d.sized(4, 8, 14), d.sized(3, 7, 12)
    c, e, per = d.sized(2, 3, 6), d.sized(2, 3, 5), d.pick((4, 9, 16, 25))
    d.need(e <= c and wide <= long)
    d.need(c < long and e < wide and 1 < long * wide - c * e < 100)
    w = Work()
    room = w.mul("Room:", long, wide, unit=SQUARE_METER)
    pool = w.mul("Pool:", c, e, unit=SQUARE_METER)
    rest = w.sub("Floor:", room, pool, unit=SQUARE_METER)
    w.mul("It takes", rest, per, unit=TILE)
    facts = [
        f"A room is {long} meters long and {wide} meters wide.",
        f"In the room is a pool that is {c} meters long and {e} meters wide.",
        f"{who.name} lays tiles on the floor around the pool, {per} tiles per square meter.",
    ]
    ask = f"How many tiles does {who.name} need?"
    return Draft(who, facts, ask, w, {"l": long, "b": wide, "c": c, "e": e, "per": per})


@family(
    check=lambda p: next(p["l"] * b * p["n"] for b in range(500) if 2 * p["l"] + 2 * b == p["rim"])
)
def area_from_rim(d: Draw) -> Draft:
    """(rim/2 - l) * l * n."""
    who, x = d.person(), d.pick(("roses", "bulbs", "seeds"))
    long, wide, n = d.sized(5, 11, 19), d.sized(2, 8, 17), d.sized(2, 4, 9)
    rim = 2 * (long + wide)
    d.need(long > wide)
    w = Work()
    half = w.div("Two sides:", rim, 2, unit=METER)
    side = w.sub("Width:", half, long, unit=METER)
    area = w.mul("Area:", long, side, unit=SQUARE_METER)
    w.mul(f"{who.He} sets", area, n, unit=x)
    facts = [
        f"The edge of a flower bed is {rim} meters long in all.",
        f"The bed is a rectangle with a length of {long} meters.",
        f"{who.name} sets {n} {x} on every square meter of the bed.",
    ]
    ask = f"How many {x} does {who.name} set?"
    return Draft(who, facts, ask, w, {"rim": rim, "l": long, "n": n})


@family(check=lambda p: len(range(p["cm"], p["m"] * 100 + 1, p["cm"])) - p["n"] * p["each"])
def rope_pieces(d: Draw) -> Draft:
    """m*100/cm - used."""
    who, x = d.person(), d.pick(("kites", "gifts", "tents"))
    cm = d.pick((4, 5, 8, 10, 20, 25, 40, 50))
    long = d.sized(2, 9, 36)
    d.need(long * 100 % cm == 0)
    n = d.sized(2, 4, 12)
    each = d.between(2, 5)
    d.need(n * each < long * 100 // cm)
    w = Work()
    all_cm = w.mul("It is", long, 100, unit=CM)
    pieces = w.div("It gives", all_cm, cm, unit=PIECE)
    used = w.mul("Used:", n, each, unit=PIECE)
    w.sub("Left:", pieces, used, unit=PIECE)
    facts = [
        f"{who.name} cuts a rope of {long} meters into pieces of {cm} cm.",
        f"{who.He} needs {each} pieces for each of {who.his} {n} {x}.",
        "One meter is 100 cm.",
    ]
    ask = f"How many pieces of rope does {who.name} have left?"
    return Draft(who, facts, ask, w, {"m": long, "cm": cm, "n": n, "each": each})


@family(check=lambda p: p["kg"] * 1000 - p["n"] * p["g"] - p["m"] * p["f"])
def flour(d: Draw) -> Draft:
    """kg*1000 - n*g - m*f grams."""
    who = d.person()
    kg = d.sized(2, 3, 9)
    n, g = d.sized(2, 6, 15), d.sized(3, 9, 30) * 10
    m, f = d.sized(2, 5, 9), d.sized(3, 9, 30) * 10
    d.need(n * g + m * f < kg * 1000 and g != f)
    w = Work()
    have = w.mul("The bag:", kg, 1000, unit=GRAM)
    first = w.mul("Cakes:", n, g, unit=GRAM)
    second = w.mul("Pies:", m, f, unit=GRAM)
    w.sub("Left:", have, first, second, unit=GRAM)
    facts = [
        f"{who.name} has a bag with {kg} kg of flour, which is {kg} times 1000 grams.",
        f"{who.He} bakes {n} cakes with {g} grams of flour in each.",
        f"{who.He} also bakes {m} pies with {f} grams in each.",
    ]
    ask = f"How many grams of flour does {who.name} have left?"
    return Draft(who, facts, ask, w, {"kg": kg, "n": n, "g": g, "m": m, "f": f})
