"""Ages: sums in the future, chains, the past, and two unknown ages."""

from __future__ import annotations

from gsm_mini.draw import Draw
from gsm_mini.nouns import YEAR
from gsm_mini.problem import Draft, Work, family

AGE = frozenset({"age", "time"})


@family(check=lambda p: (p["age"] + p["t"]) + (p["age"] * p["k"] + p["t"]))
def ages_later(d: Draw) -> Draft:
    """age*(k + 1) + 2t: the sum of two ages in t years."""
    who, other = d.people(2)
    age, k, t = d.sized(4, 12, 24), d.between(2, 4), d.sized(2, 9, 19)
    d.need(age * k <= 90)
    w = Work()
    old = w.mul(f"{other.name} is", k, age, unit="")
    a = w.add(f"Later {who.name} is", age, t)
    b = w.add(f"Later {other.name} is", old, t)
    w.add("Together", a, b, unit=YEAR)
    facts = [
        f"{who.name} is {age} years old.",
        f"{other.name} lives next door and is {k} times as old as {who.name}.",
        f"They both plan a party in {YEAR.of(t)}.",
    ]
    ask = f"How old will the two be together in {YEAR.of(t)}?"
    return Draft(who, facts, ask, w, {"age": age, "k": k, "t": t}, AGE)


@family(check=lambda p: p["c"] * (2 * p["k"] + 1) + p["older"])
def ages_chain(d: Draw) -> Draft:
    """c + k*c + (k*c + older)."""
    a, b, c = d.people(3)
    young, k, older = d.sized(3, 9, 19), d.between(2, 4), d.sized(2, 9, 29)
    d.need(young * k + older <= 95)
    w = Work()
    mid = w.mul(f"{b.name} is", k, young)
    old = w.add(f"{a.name} is", mid, older)
    w.add("Together", young, mid, old, unit=YEAR)
    facts = [
        f"{a.name} is {YEAR.of(older)} older than {b.name}.",
        f"{b.name} is {k} times as old as {c.name}.",
        f"{c.name} is {YEAR.of(young)} old today.",
    ]
    d_facts = facts if d.chance(0.5) else facts[::-1]
    ask = f"What do the ages of {a.name}, {b.name} and {c.name} add up to?"
    return Draft(a, d_facts, ask, w, {"c": young, "k": k, "older": older}, AGE)


@family(check=lambda p: next(b for b in range(200) if p["t"] + p["k"] * b + p["gap"] == p["then"]))
def ages_back(d: Draw) -> Draft:
    """(then - t - gap) / k: an age found from a statement about the future."""
    who, other = d.people(2)
    young, k = d.sized(3, 9, 24), d.between(2, 4)
    gap, t = d.sized(1, 5, 9), d.sized(2, 9, 24)
    then = young * k + gap + t
    d.need(then <= 95)
    w = Work()
    now = w.sub(f"{who.name} is now", then, t)
    even = w.sub(f"Without the {YEAR.of(gap)}:", now, gap)
    w.div(f"{other.name} is", even, k, unit=YEAR)
    facts = [
        f"In {YEAR.of(t)} {who.name} will be {then} years old.",
        f"Today {who.name} is {YEAR.of(gap)} older than {k} times the age of {other.name}.",
        f"{other.name} is the younger of the two.",
    ]
    ask = f"How old is {other.name} today?"
    return Draft(who, facts, ask, w, {"t": t, "then": then, "gap": gap, "k": k}, AGE)


@family(check=lambda p: next(x * p["k"] + p["t"] for x in range(200) if x + x * p["k"] == p["sum"]))
def ages_two(d: Draw) -> Draft:
    """sum / (k + 1) * k + t: the older one's age in t years."""
    who, other = d.people(2)
    young, k, t = d.sized(4, 12, 22), d.between(2, 5), d.sized(2, 9, 19)
    d.need(young * k <= 90)
    total = young * (k + 1)
    w = Work()
    parts = w.add("Parts:", k, 1)
    small = w.div(f"{other.name} is", total, parts)
    big = w.mul(f"{who.name} is", small, k)
    w.add("Later", big, t, unit=YEAR)
    facts = [
        f"The ages of {who.name} and {other.name} add up to {total} years.",
        f"{who.name} is {k} times as old as {other.name}.",
        "Both have their birthday on the same day in May.",
    ]
    ask = f"How old will {who.name} be in {YEAR.of(t)}?"
    return Draft(who, facts, ask, w, {"sum": total, "k": k, "t": t}, AGE)
