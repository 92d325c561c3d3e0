"""Groups: remainders, seats, averages, rows, stock, and working backwards."""

from __future__ import annotations

from gsm_mini.draw import Draw
from gsm_mini.nouns import ANIMALS, BUS, CHILD, CONTAINERS, DAY, FRUIT, POINT
from gsm_mini.problem import Draft, Work, family


@family(check=lambda p: (p["n"] * p["k"] + p["more"]) % p["size"])
def left_over(d: Draw) -> Draft:
    """(n*k + more) mod size."""
    who, x, box = d.person(), d.thing(), d.pick(CONTAINERS)
    n, k, more, size = d.sized(3, 8, 15), d.sized(4, 9, 29), d.sized(2, 9, 60), d.sized(4, 9, 15)
    whole = n * k + more
    full, left = divmod(whole, size)
    d.need(left > 0 and full > 1)
    w = Work()
    picked = w.mul("First", n, k, unit=x)
    total = w.add("In all", picked, more, unit=x)
    used = w.mul(f"{full} full {box.many} take", full, size, unit=x)
    w.sub("Left over:", total, used, unit=x)
    facts = [
        f"{who.name} gets {x.of(k)} from each of {n} friends and has {more} of {who.his} own.",
        f"{who.He} puts all the {x.many} into {box.many} of {size} and fills as many as possible.",
    ]
    ask = f"How many {x.many} are left over at the end?"
    return Draft(who, facts, ask, w, {"n": n, "k": k, "more": more, "size": size})


@family(check=lambda p: -(-(p["n"] * p["k"] + p["adults"]) // p["seats"]))
def buses_needed(d: Draw) -> Draft:
    """(n*k + adults) / seats, rounded up."""
    who = d.person()
    n, k = d.sized(3, 6, 15), d.sized(8, 20, 32)
    adults, seats = d.sized(2, 9, 29), d.sized(12, 30, 48)
    full, left = divmod(n * k + adults, seats)
    d.need(left > 0 and full > 1)
    w = Work()
    kids = w.mul("There are", n, k, unit=CHILD)
    people = w.add("With adults", kids, adults, unit="people")
    taken = w.mul(f"{BUS.of(full)} take", full, seats, unit="people")
    w.sub("Not seated:", people, taken, unit="people")
    w.add("So", full, 1, unit=BUS)
    facts = [
        f"{who.name} plans a trip for {n} classes of {k} children each.",
        f"In all {adults} adults come along, {who.name} among them, and everybody needs a seat.",
        f"One bus has {seats} seats.",
    ]
    ask = f"What is the smallest number of buses that {who.name} must order?"
    params = {"n": n, "k": k, "adults": adults, "seats": seats}
    return Draft(who, facts, ask, w, params, frozenset({"bus"}))


@family(
    check=lambda p: next(x for x in range(2000) if x + p["a"] + p["b"] + p["c"] == 4 * p["mean"])
)
def mean_target(d: Draw) -> Draft:
    """4*mean - (a + b + c)."""
    who = d.person()
    a, b, c, last = (d.sized(5, 40, 95) for _ in range(4))
    d.need((a + b + c + last) % 4 == 0)
    mean = (a + b + c + last) // 4
    w = Work()
    need = w.mul("Needed:", 4, mean, unit=POINT)
    have = w.add("So far", a, b, c, unit=POINT)
    w.sub("Last game:", need, have, unit=POINT)
    facts = [
        f"{who.name} scores {a}, {b} and {c} points in three games.",
        f"{who.He} wants an average of exactly {mean} points over four games.",
    ]
    ask = f"How many points must {who.name} score in the fourth game?"
    params = {"a": a, "b": b, "c": c, "mean": mean}
    return Draft(who, facts, ask, w, params, frozenset({"shirt"}))


@family(check=lambda p: (sum(p[k] for k in "abc") - 3 * p["goal"]) // 3)
def mean_above(d: Draw) -> Draft:
    """(a + b + c)/3 - goal."""
    who, x = d.person(), d.pick(FRUIT)
    a, b, c = (d.sized(6, 40, 95) for _ in range(3))
    d.need((a + b + c) % 3 == 0)
    mean = (a + b + c) // 3
    goal = d.between(max(2, mean // 2), mean - 1)
    w = Work()
    total = w.add("Total:", a, b, c, unit=x)
    mid = w.div("Average:", total, 3, unit=x)
    w.sub("More:", mid, goal, unit=x)
    facts = [
        f"{who.name} picks {a} {x.many} on Monday, {b} on Tuesday and {c} on Friday.",
        f"{who.He} had hoped to pick {goal} {x.many} on an average day.",
    ]
    ask = f"By how many {x.many} is the average of these three days above this number?"
    return Draft(who, facts, ask, w, {"a": a, "b": b, "c": c, "goal": goal})


@family(
    check=lambda p: sum(p["fruit"] for _ in range(p["rows"] * p["cols"] - p["dead"])) - p["ate"]
)
def orchard(d: Draw) -> Draft:
    """(rows*cols - dead)*fruit - ate."""
    who, x = d.person(), d.pick(FRUIT)
    rows, cols, fruit = d.sized(3, 6, 9), d.sized(3, 8, 11), d.sized(3, 9, 24)
    dead, ate = d.sized(2, 6, 15), d.extra(2, 9, 60)
    d.need(rows * cols - dead > 3 and ate < (rows * cols - dead) * fruit)
    w = Work()
    trees = w.mul("Trees:", rows, cols)
    good = w.sub("Good trees:", trees, dead)
    crop = w.mul("They give", good, fruit, unit=x)
    if ate:
        w.sub("Left:", crop, ate, unit=x)
    facts = [
        f"{who.name} has {rows} rows of {x.one} trees with {cols} trees in each row.",
        f"This year {dead} of the trees are dead, and each of the others gives {fruit} {x.many}.",
    ]
    if ate:
        facts.append(f"The birds eat {ate} of the {x.many}.")
    ask = f"How many {x.many} {'are left for' if ate else 'are there for'} {who.name}?"
    params = {"rows": rows, "cols": cols, "fruit": fruit, "dead": dead, "ate": ate}
    return Draft(who, facts, ask, w, params, frozenset({"birds"}))


@family(
    check=lambda p: next(x for x in range(3000) if x * p["k"] - p["lost"] + p["got"] == p["now"])
)
def undo(d: Draw) -> Draft:
    """(now - got + lost) / k."""
    who, x = d.person(), d.thing()
    n, k = d.sized(4, 20, 70), d.pick((2, 3, 4, 5))
    lost, got = d.sized(2, 9, 60), d.sized(2, 9, 60)
    d.need(lost < n * k - 1)
    now = n * k - lost + got
    w = Work()
    before = w.sub("Before Sunday", now, got, unit=x)
    most = w.add("Before Friday", before, lost, unit=x)
    w.div("On Monday", most, k, unit=x)
    times = {2: "twice", 3: "3 times", 4: "4 times", 5: "5 times"}[k]
    facts = [
        f"On Tuesday {who.name} had {times} as many {x.many} as on Monday.",
        f"On Friday {who.he} lost {lost} {x.many}, and on Sunday {who.he} got {got} new ones.",
        f"Now {who.name} has {x.of(now)}.",
    ]
    ask = f"How many {x.many} did {who.name} have on Monday?"
    return Draft(who, facts, ask, w, {"k": k, "lost": lost, "got": got, "now": now})


@family(check=lambda p: p["stock"] // (p["n"] * p["a"] + p["m"] * p["b"]))
def feed_days(d: Draw) -> Draft:
    """stock / (n*a + m*b) days."""
    who, (x, y) = d.person(), d.some(ANIMALS, 2)
    n, a, m, b = d.sized(2, 5, 12), d.sized(2, 5, 9), d.sized(2, 5, 9), d.sized(2, 5, 9)
    day, t = n * a + m * b, d.sized(3, 8, 15)
    d.need(a != b and day < 100)
    w = Work()
    first = w.mul(f"The {x.many} eat", n, a, unit="kg")
    second = w.mul(f"The {y.many} eat", m, b, unit="kg")
    both = w.add("Per day", first, second, unit="kg")
    w.div("It lasts", day * t, both, unit=DAY)
    facts = [
        f"{who.name} keeps {x.of(n)} and {y.of(m)}.",
        f"Each {x.one} eats {a} kg of feed a day and each {y.one} eats {b} kg a day.",
        f"There are {day * t} kg of feed in the barn.",
    ]
    ask = "How many days does the feed last?"
    params = {"n": n, "a": a, "m": m, "b": b, "stock": day * t}
    return Draft(who, facts, ask, w, params, frozenset({"birds"}))
