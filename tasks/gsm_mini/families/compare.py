"""Comparisons: chains of more and fewer, sums with differences, ratios, evening out, legs."""

from __future__ import annotations

from gsm_mini.draw import Draw
from gsm_mini.nouns import DAY, FINDS
from gsm_mini.problem import Draft, Params, Work, family


@family(check=lambda p: p["a"] + 2 * p["k"] * p["a"] - p["fewer"])
def compare_chain(d: Draw) -> Draft:
    """a + k*a + (k*a - fewer)."""
    (a, b, c), x = d.people(3), d.thing()
    n, k, fewer = d.sized(4, 20, 80), d.sized(2, 4, 9), d.sized(2, 9, 60)
    d.need(fewer < n * k - 1)
    w = Work()
    second = w.mul(f"{b.name} has", k, n, unit=x)
    third = w.sub(f"{c.name} has", second, fewer, unit=x)
    w.add("Together", n, second, third, unit=x)
    facts = [
        f"{a.name} has {x.of(n)}.",
        f"{b.name} has {k} times as many {x.many} as {a.name}.",
        f"{c.name} has {fewer} fewer {x.many} than {b.name}.",
    ]
    ordered = facts if d.chance(0.6) else facts[::-1]
    ask = f"How many {x.many} do the three have together?"
    return Draft(a, ordered, ask, w, {"a": n, "k": k, "fewer": fewer})


@family(
    check=lambda p: next(
        (b + p["more"]) * p["price"] for b in range(2000) if b + b + p["more"] == p["sum"]
    )
)
def sum_difference(d: Draw) -> Draft:
    """((sum - more)/2 + more) * price: the larger of two, sold."""
    (a, b), x = d.people(2), d.thing()
    small, more, price = d.sized(5, 20, 60), d.sized(2, 9, 35), d.sized(2, 4, 9)
    total = 2 * small + more
    w = Work()
    even = w.sub("Without the extra", total, more, unit=x)
    less = w.div(f"{b.name} has", even, 2, unit=x)
    big = w.add(f"{a.name} has", less, more, unit=x)
    w.mul(f"{a.name} gets", big, price, unit="$")
    facts = [
        f"{a.name} and {b.name} have {x.of(total)} together.",
        f"{a.name} has {more} more {x.many} than {b.name}.",
        f"{a.name} sells all of {a.his} own {x.many} for ${price} each.",
    ]
    ask = f"How many dollars does {a.name} get?"
    return Draft(
        a, facts, ask, w, {"sum": total, "more": more, "price": price}, frozenset({"price"})
    )


@family(check=lambda p: p["sum"] * (p["a"] - p["b"]) // (p["a"] + p["b"]))
def ratio_split(d: Draw) -> Draft:
    """sum/(a+b)*a - sum/(a+b)*b."""
    (p, q), x = d.people(2), d.thing()
    a, b, unit = d.sized(3, 6, 9), d.sized(1, 3, 7), d.sized(3, 12, 60)
    d.need(a > b)
    total = (a + b) * unit
    w = Work()
    parts = w.add("Parts:", a, b)
    one = w.div("One part:", total, parts, unit=x)
    first = w.mul(f"{p.name} gets", a, one, unit=x)
    second = w.mul(f"{q.name} gets", b, one, unit=x)
    w.sub("Difference:", first, second, unit=x)
    facts = [
        f"{p.name} and {q.name} share {x.of(total)}.",
        f"For every {a} {x.many} that {p.name} takes, {q.name} takes {b}.",
        "In the end nothing is left over.",
    ]
    ask = f"How many more {x.many} does {p.name} get than {q.name}?"
    return Draft(p, facts, ask, w, {"sum": total, "a": a, "b": b})


def _even_out(p: Params) -> int:
    a, b, given = p["n"] * p["k"], p["b"], 0
    while a > b:
        a, b, given = a - 1, b + 1, given + 1
    return given


@family(check=_even_out)
def even_out(d: Draw) -> Draft:
    """(n*k - b) / 2 move from one to the other."""
    (a, b), x = d.people(2), d.thing()
    n, k = d.sized(3, 8, 19), d.sized(3, 8, 19)
    have = n * k
    other = d.between(2, have - 4)
    d.need((have - other) % 2 == 0)
    w = Work()
    mine = w.mul(f"{a.name} has", n, k, unit=x)
    gap = w.sub("The gap is", mine, other, unit=x)
    w.div(f"{a.name} gives", gap, 2, unit=x)
    facts = [
        f"{a.name} has {n} bags with {k} {x.many} in each bag.",
        f"{b.name} has {x.of(other)}.",
        f"{a.name} gives some of {a.his} {x.many} to {b.name} so that both have the same number.",
    ]
    ask = f"How many {x.many} does {a.name} give away?"
    return Draft(a, facts, ask, w, {"n": n, "k": k, "b": other})


@family(
    check=lambda p: next(
        c for c in range(p["heads"] + 1) if 4 * c + 2 * (p["heads"] - c) == p["legs"]
    )
)
def heads_legs(d: Draw) -> Draft:
    """(legs - 2*heads) / 2 of the animals have four legs."""
    who = d.person()
    four, two = d.pick(("cows", "goats", "horses")), d.pick(("hens", "ducks"))
    many, few = d.sized(3, 15, 60), d.sized(3, 15, 60)
    heads, legs = many + few, 4 * many + 2 * few
    w = Work()
    base = w.mul("Two legs each:", heads, 2, unit="legs")
    over = w.sub("More:", legs, base, unit="legs")
    w.div(f"The {four}:", over, 2, unit=four)
    facts = [
        f"On a farm {who.name} counts only {four} and {two}.",
        f"There are {heads} animals, and they have {legs} legs in all.",
        f"Each of the {four} has 4 legs and each of the {two} has 2 legs.",
    ]
    ask = f"How many {four} are on the farm?"
    return Draft(who, facts, ask, w, {"heads": heads, "legs": legs}, frozenset({"birds"}))


@family(check=lambda p: sum(p["a"] + i * p["step"] for i in range(p["n"])))
def daily_growth(d: Draw) -> Draft:
    """a + (a + step) + (a + 2*step) [+ (a + 3*step)]."""
    who, x = d.person(), d.pick(FINDS)
    a, step = d.sized(4, 20, 80), d.sized(2, 6, 25)
    n = 4 if d.more() else 3
    w = Work()
    days = [a]
    for i in range(2, n + 1):
        days.append(w.add(f"Day {i}:", days[-1], step, unit=x))
    w.add("Together", *days, unit=x)
    facts = [
        f"{who.name} finds {x.of(a)} on the first day of a trip.",
        f"On each day after that {who.he} finds {step} more {x.many} than on the day before.",
        f"The trip lasts {DAY.of(n)}.",
    ]
    ask = f"How many {x.many} does {who.name} find on the whole trip?"
    return Draft(who, facts, ask, w, {"a": a, "step": step, "n": n})
