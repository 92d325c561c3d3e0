"""Fractions and percentages of whole numbers, forwards and backwards."""

from __future__ import annotations

from gsm_mini.draw import Draw
from gsm_mini.nouns import CHILD
from gsm_mini.problem import Draft, Params, Work, family

PART = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth", 6: "a sixth", 8: "an eighth"}


@family(check=lambda p: p["all"] * (p["a"] - 1) * (p["b"] - 1) // (p["a"] * p["b"]) + p["buys"])
def fraction_chain(d: Draw) -> Draft:
    """all less 1/a, less 1/b of the rest, plus what is bought."""
    who, x = d.person(), d.thing()
    a, b = d.pick(tuple(PART)), d.pick(tuple(PART))
    whole, buys = a * b * d.sized(2, 6, 15), d.extra(2, 12, 60)
    d.need(whole * (a - 1) // a % b == 0 and whole < 800)
    w = Work()
    gone = w.div(f"{who.He} gives", whole, a, unit=x)
    rest = w.sub("Left:", whole, gone, unit=x)
    sold = w.div(f"{who.He} sells", rest, b, unit=x)
    left = w.sub("Left:", rest, sold, unit=x)
    if buys:
        w.add("Now", left, buys, unit=x)
    facts = [
        f"{who.name} has {x.of(whole)} and gives {PART[a]} of them to a friend.",
        f"Then {who.name} sells {PART[b]} of the {x.many} that are left.",
    ]
    if buys:
        facts.append(f"Later {who.he} buys {buys} more {x.many}.")
    ask = f"How many {x.many} does {who.name} have in the end?"
    return Draft(who, facts, ask, w, {"all": whole, "a": a, "b": b, "buys": buys})


def _before(p: Params) -> int:
    return next(n for n in range(0, 5000, p["k"]) if n - n // p["k"] - p["gave"] == p["left"])


@family(check=_before)
def fraction_back(d: Draw) -> Draft:
    """(left + gave) / (k - 1) * k."""
    who, x = d.person(), d.thing()
    k, unit, gave = d.pick((2, 3, 4, 5, 6)), d.sized(4, 15, 60), d.sized(2, 9, 40)
    left = unit * (k - 1) - gave
    d.need(left > 1)
    w = Work()
    before = w.add("Before that:", left, gave, unit=x)
    if k > 2:
        part = w.div("One part:", before, k - 1, unit=x)
        w.mul("At first", part, k, unit=x)
    else:
        w.mul("At first", before, 2, unit=x)
    facts = [
        f"{who.name} had some {x.many} and sold {PART[k]} of them at a market.",
        f"After that {who.he} gave {gave} {x.many} to a friend.",
        f"Now {who.name} has {x.of(left)} left.",
    ]
    ask = f"How many {x.many} did {who.name} have at first?"
    return Draft(who, facts, ask, w, {"k": k, "gave": gave, "left": left})


@family(check=lambda p: round(p["all"] * (1 - p["rate"] / 100) * (1 - 1 / p["k"])))
def percent_split(d: Draw) -> Draft:
    """all less rate %, less 1/k of the rest."""
    who = d.person()
    rate, k = d.pick((10, 20, 25, 30, 40, 50, 60, 75)), d.pick((2, 3, 4, 5))
    whole = d.sized(2, 10, 49) * 20
    d.need(whole * rate % 100 == 0 and whole * (100 - rate) // 100 % k == 0)
    w = Work()
    walk = w.percent("Walk:", whole, rate, unit=CHILD)
    rest = w.sub("Rest:", whole, walk, unit=CHILD)
    ride = w.div("Bike:", rest, k, unit=CHILD)
    w.sub("Bus:", rest, ride, unit=CHILD)
    facts = [
        f"There are {whole} children in the school where {who.name} works.",
        f"{rate}% of the children walk to school.",
        f"Of the rest, {PART[k]} come by bike and all others come by bus.",
    ]
    ask = "How many children come by bus?"
    return Draft(
        who, facts, ask, w, {"all": whole, "rate": rate, "k": k}, frozenset({"bus", "time"})
    )


@family(check=lambda p: (p["a"] * (100 + p["rate"]) - 100 * p["off"]) * p["n"] // 100)
def price_rise(d: Draw) -> Draft:
    """n * (a + a*rate/100 - off)."""
    who, x = d.person(), d.pick(("coat", "chair", "table", "bike"))
    a, rate = d.sized(3, 6, 19) * 10, d.pick((10, 20, 30, 40, 50))
    off, n = d.sized(2, 5, 19), d.sized(2, 5, 9)
    d.need(off < a)
    w = Work()
    up = w.percent("It rises by", a, rate, unit="$")
    now = w.add("New price:", a, up, unit="$")
    cut = w.sub("With the coupon", now, off, unit="$")
    w.mul("In all", cut, n, unit="$")
    d.need(cut < 100 or n < 10)
    facts = [
        f"A {x} used to cost ${a}, but now its price is {rate}% higher.",
        f"{who.name} has a coupon that takes ${off} off the new price of each {x}.",
        f"{who.He} buys {n} {x}s.",
    ]
    ask = f"How many dollars does {who.name} pay?"
    return Draft(who, facts, ask, w, {"a": a, "rate": rate, "off": off, "n": n})


@family(check=lambda p: p["n"] * p["k"] // p["a"] - p["n"] * p["k"] // p["a"] // p["b"])
def part_of_part(d: Draw) -> Draft:
    """n*k/a of all, less 1/b of those."""
    who = d.person()
    n, k, a, b = d.sized(3, 9, 19), d.sized(8, 20, 36), d.pick((2, 3, 4, 5)), d.pick((2, 3, 4, 5))
    d.need(n * k % (a * b) == 0)
    w = Work()
    whole = w.mul("In all", n, k, unit=CHILD)
    play = w.div("Play music:", whole, a, unit=CHILD)
    drum = w.div("Drums:", play, b, unit=CHILD)
    w.sub("Others:", play, drum, unit=CHILD)
    facts = [
        f"{who.name} visits a school with {n} classes of {k} children each.",
        f"{PART[a].capitalize()} of all the children play music.",
        f"Of those who play music, {PART[b]} play the drums and the others sing in a band.",
    ]
    ask = "How many children sing in a band?"
    return Draft(who, facts, ask, w, {"n": n, "k": k, "a": a, "b": b})
