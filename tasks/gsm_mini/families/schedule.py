"""Schedules: minutes and hours, lessons with breaks, weeks of work, dozens."""

from __future__ import annotations

from gsm_mini.draw import Draw
from gsm_mini.nouns import BAKED, DAY, HOUR, KM, LESSON, MINUTE, WEEK
from gsm_mini.problem import Draft, Work, family

TIME = frozenset({"time"})


@family(check=lambda p: p["free"] * 60 - (p["h"] * 60 + p["m"]) - p["n"] * p["ad"])
def film_time(d: Draw) -> Draft:
    """free*60 - (h*60 + m) - n*ad minutes."""
    who = d.person()
    h, m, n, ad = d.sized(1, 2, 3), d.between(5, 55), d.sized(2, 4, 9), d.sized(2, 5, 12)
    free = h + d.between(1, 3)
    d.need(h * 60 + m + n * ad < free * 60)
    w = Work()
    have = w.mul("Free:", free, 60, unit=MINUTE)
    hours = w.mul("Hours:", h, 60, unit=MINUTE)
    film = w.add("Film:", hours, m, unit=MINUTE)
    ads = w.mul("Breaks:", n, ad, unit=MINUTE)
    w.sub("Left:", have, film, ads, unit=MINUTE)
    facts = [
        f"{who.name} has {HOUR.of(free)} free and watches a film.",
        f"The film lasts {HOUR.of(h)} and {MINUTE.of(m)}.",
        f"There are {n} breaks of {MINUTE.of(ad)} each on top of that.",
    ]
    ask = f"How many free minutes does {who.name} have left?"
    return Draft(who, facts, ask, w, {"free": free, "h": h, "m": m, "n": n, "ad": ad}, TIME)


@family(check=lambda p: sum([p["m"]] * p["n"] + [p["b"]] * (p["n"] - 1)) + p["home"])
def lessons(d: Draw) -> Draft:
    """n*m + (n-1)*b + home minutes."""
    who = d.person()
    n, m, b, home = d.sized(3, 5, 9), d.sized(20, 40, 60), d.sized(3, 9, 19), d.extra(5, 20, 45)
    w = Work()
    work = w.mul("Lessons:", n, m, unit=MINUTE)
    gaps = w.sub("Breaks:", n, 1)
    rest = w.mul("They last", gaps, b, unit=MINUTE)
    if home:
        w.add("In all", work, rest, home, unit=MINUTE)
    else:
        w.add("In all", work, rest, unit=MINUTE)
    facts = [
        f"{who.name} has {LESSON.of(n)} of {m} minutes in a row.",
        f"Between one lesson and the next there is a break of {b} minutes.",
    ]
    if home:
        facts.append(f"After the last lesson {who.he} walks home for {home} minutes.")
    end = "gets home" if home else "ends the last lesson"
    ask = f"How many minutes pass from the start of the first lesson until {who.name} {end}?"
    return Draft(who, facts, ask, w, {"n": n, "m": m, "b": b, "home": home}, TIME)


@family(check=lambda p: (p["a"] * p["k"] + p["b"] * (7 - p["k"])) * p["weeks"] - p["burnt"])
def weekly_total(d: Draw) -> Draft:
    """(a*k + b*(7-k)) * weeks - burnt."""
    who, x = d.person(), d.pick(BAKED)
    k, a, b, weeks = d.between(2, 5), d.sized(3, 9, 19), d.sized(3, 9, 19), d.sized(2, 4, 9)
    d.need(a != b and a * k + b * (7 - k) < 100)
    w = Work()
    first = w.mul("Work days:", k, a, unit=x)
    off = w.sub("Other days:", 7, k)
    second = w.mul("They give", off, b, unit=x)
    week = w.add("Per week", first, second, unit=x)
    baked = w.mul("In all", week, weeks, unit=x)
    burnt = d.extra(2, 9, 40)
    if burnt:
        w.sub("Good ones:", baked, burnt, unit=x)
    facts = [
        f"{who.name} bakes {x.of(a)} on each of {k} days of the week.",
        f"On each of the other days of the week {who.he} bakes {b}.",
    ]
    span = f"in {WEEK.of(weeks)} of 7 days"
    ask = f"How many {x.many} does {who.name} bake {span}?"
    if burnt:
        ask = f"If {burnt} {x.many} burn {span}, how many good ones does {who.name} bake?"
    return Draft(who, facts, ask, w, {"a": a, "k": k, "b": b, "weeks": weeks, "burnt": burnt})


@family(check=lambda p: (12 * p["dozen"] - p["bad"]) // p["size"] * p["price"])
def dozens(d: Draw) -> Draft:
    """(12*dozen - bad)/size*price."""
    who = d.person()
    dozen, size, price = d.sized(3, 8, 25), d.pick((4, 5, 6, 8, 10)), d.sized(2, 6, 12)
    bad = 12 * dozen % size + size * d.between(0, 2)
    d.need(2 <= bad < 12 * dozen // 2)
    w = Work()
    eggs = w.mul("Eggs:", dozen, 12)
    good = w.sub("Good:", eggs, bad)
    packs = w.div("Packs:", good, size)
    w.mul(f"{who.He} gets", packs, price, unit="$")
    facts = [
        f"{who.name} collects {dozen} dozen eggs, but {bad} of the eggs are broken.",
        f"{who.He} puts the good eggs into packs of {size} and sells each pack for ${price}.",
    ]
    ask = f"How many dollars does {who.name} get for all the packs?"
    return Draft(who, facts, ask, w, {"dozen": dozen, "bad": bad, "size": size, "price": price})


@family(check=lambda p: -(-(p["goal"] - p["done"]) // (p["fast"] - p["rest"])) + p["off"])
def running(d: Draw) -> Draft:
    """(goal - done)/(fast - rest) + off days."""
    who = d.person()
    net, rest, t = d.sized(3, 8, 15), d.sized(2, 6, 12), d.sized(3, 9, 19)
    done, off = d.sized(5, 30, 99), d.sized(2, 4, 9)
    fast, goal = net + rest, net * t + done
    w = Work()
    gap = w.sub("Still to run:", goal, done, unit=KM)
    per = w.sub("Per day", fast, rest, unit=KM)
    days = w.div("That takes", gap, per, unit=DAY)
    w.add("With the free days", days, off, unit=DAY)
    facts = [
        f"{who.name} wants to run {goal} km this year and has run {done} km so far.",
        f"On a sport day {who.he} goes {fast} km, but {rest} km of it on a bike do not count.",
        f"{who.He} also takes {off} free days without any sport.",
    ]
    ask = f"How many days does {who.name} need from now on to reach the {goal} km?"
    params = {"goal": goal, "done": done, "fast": fast, "rest": rest, "off": off}
    return Draft(who, facts, ask, w, params, TIME)
