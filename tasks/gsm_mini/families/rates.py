"""Rates: journeys, meeting and catching up, machines, reading, pay, tanks, fuel."""

from __future__ import annotations

from gsm_mini.draw import Draw
from gsm_mini.nouns import DAY, HOUR, KM, LITER, MINUTE, PAGE, THINGS
from gsm_mini.problem import Draft, Params, Work, family

TIME = frozenset({"time", "bus"})


@family(check=lambda p: sum([p["v"]] * p["t"]) + sum([p["u"]] * p["s"]) + p["walk"])
def two_legs(d: Draw) -> Draft:
    """v*t + u*s + walk."""
    who = d.person()
    v, t = d.sized(12, 40, 95), d.sized(2, 5, 12)
    u, s = d.sized(12, 40, 95), d.sized(2, 5, 9)
    walk = d.extra(2, 9, 19)
    d.need(u != v)
    w = Work()
    first = w.mul("First", v, t, unit=KM)
    second = w.mul("Then", u, s, unit=KM)
    if walk:
        w.add("In all", first, second, walk, unit=KM)
    else:
        w.add("In all", first, second, unit=KM)
    facts = [
        f"{who.name} travels for {HOUR.of(t)} at {v} km per hour.",
        f"After lunch {who.he} travels for {HOUR.of(s)} at {u} km per hour.",
    ]
    if walk:
        facts.append(f"At the end {who.he} walks {walk} km to a hut.")
    ask = f"How many km does {who.name} travel in all?"
    return Draft(who, facts, ask, w, {"v": v, "t": t, "u": u, "s": s, "walk": walk}, TIME)


def _hours_until(gap: int, closing: int) -> int:
    hours = 0
    while gap > 0:
        gap, hours = gap - closing, hours + 1
    return hours


@family(check=lambda p: p["v"] * _hours_until(p["far"], p["v"] + p["u"]))
def meeting(d: Draw) -> Draft:
    """far / (v + u) hours, times v: where two that ride towards each other meet."""
    who, other = d.people(2)
    v, u, t = d.sized(4, 12, 29), d.sized(4, 12, 29), d.sized(2, 6, 14)
    d.need(u != v)
    far = (v + u) * t
    w = Work()
    both = w.add("Each hour they close", v, u, unit=KM)
    hours = w.div("They meet after", far, both, unit=HOUR)
    w.mul(f"{who.name} rides", hours, v, unit=KM)
    facts = [
        f"{who.name} and {other.name} live {far} km apart and ride towards each other.",
        f"They start at the same time. {who.name} rides {v} km per hour "
        f"and {other.name} rides {u} km per hour.",
    ]
    ask = f"How many km has {who.name} gone when they meet?"
    return Draft(who, facts, ask, w, {"far": far, "v": v, "u": u}, TIME)


def _catch(p: Params) -> int:
    ahead, hours = p["v"] * p["head"], 0
    behind = 0
    while behind < ahead:
        ahead, behind, hours = ahead + p["v"], behind + p["u"], hours + 1
    return hours


@family(check=_catch)
def catching_up(d: Draw) -> Draft:
    """v*head / (u - v) hours."""
    who, other = d.people(2)
    gain, head, t = d.sized(2, 6, 15), d.sized(2, 4, 9), d.sized(2, 6, 15)
    d.need(gain * t % head == 0)
    v = gain * t // head
    d.need(3 <= v <= 80)
    u = v + gain
    w = Work()
    lead = w.mul(f"{other.name} leads by", head, v, unit=KM)
    closing = w.sub("Each hour the gap shrinks by", u, v, unit=KM)
    w.div("It takes", lead, closing, unit=HOUR)
    facts = [
        f"{other.name} leaves town and travels at {v} km per hour.",
        f"{who.name} starts {HOUR.of(head)} later on the same road at {u} km per hour.",
        "Both keep their speed all the time.",
    ]
    ask = f"How many hours after {who.name} starts does {who.he} catch {other.name}?"
    return Draft(who, facts, ask, w, {"v": v, "head": head, "u": u}, TIME)


@family(check=lambda p: _hours_until(p["want"] - p["have"], p["a"] + p["b"]))
def two_machines(d: Draw) -> Draft:
    """(want - have) / (a + b) minutes."""
    who, x = d.person(), d.thing()
    a, b, t = d.sized(3, 9, 29), d.sized(3, 9, 29), d.sized(3, 9, 19)
    have = d.sized(5, 30, 199)
    d.need(a != b)
    want = have + (a + b) * t
    w = Work()
    rest = w.sub("Still to pack:", want, have, unit=x)
    both = w.add("Per minute", a, b, unit=x)
    w.div("Time:", rest, both, unit=MINUTE)
    facts = [
        f"{who.name} runs two machines that pack {x.many}.",
        f"The old machine packs {a} per minute and the new one packs {b} per minute.",
        f"The order is for {x.of(want)}, and {have} are packed already.",
    ]
    ask = "How many minutes do both machines together need for the rest?"
    return Draft(who, facts, ask, w, {"a": a, "b": b, "want": want, "have": have}, TIME)


@family(check=lambda p: (p["all"] - p["n"] * p["day"] - p["night"]) // p["left"])
def reading(d: Draw) -> Draft:
    """(all - n*day - night) / left pages per day."""
    who = d.person()
    n, day, left = d.sized(2, 6, 12), d.sized(8, 20, 45), d.sized(2, 6, 9)
    per, night = d.sized(5, 20, 60), d.sized(3, 12, 40)
    whole = n * day + night + left * per
    w = Work()
    done = w.mul("Read:", n, day, unit=PAGE)
    done = w.add("And then", done, night, unit=PAGE)
    rest = w.sub("Left:", whole, done, unit=PAGE)
    w.div("Each day", rest, left, unit=PAGE)
    facts = [
        f"{who.name} has a book of {whole} pages.",
        f"For {DAY.of(n)} {who.he} reads {day} pages a day, and then on a train {night} pages.",
        f"{who.He} wants to finish it in {left} more days, with as many pages each day.",
    ]
    ask = f"How many pages must {who.name} read on each of these {left} days?"
    params = {"all": whole, "n": n, "day": day, "night": night, "left": left}
    return Draft(who, facts, ask, w, params, frozenset({"page"}))


@family(check=lambda p: (p["h"] + p["o"]) * p["pay"] + p["o"] * p["plus"] - p["tax"])
def overtime(d: Draw) -> Draft:
    """h*pay + o*(pay + plus) - tax."""
    who = d.person()
    h, o = d.sized(12, 30, 45), d.sized(2, 6, 14)
    pay, plus, tax = d.sized(6, 9, 24), d.sized(2, 5, 12), d.extra(5, 20, 99)
    w = Work()
    base = w.mul("Normal pay:", h, pay, unit="$")
    rate = w.add("Extra hours pay", pay, plus, unit="$")
    over = w.mul("Those give", o, rate, unit="$")
    total = w.add("Total:", base, over, unit="$")
    if tax:
        w.sub("After tax", total, tax, unit="$")
    facts = [
        f"{who.name} earns ${pay} an hour and works {h} normal hours this week.",
        f"{who.He} also works {o} extra hours, and each of those pays ${plus} more than usual.",
    ]
    if tax:
        facts.append(f"A tax of ${tax} is taken off.")
    ask = f"How many dollars does {who.name} get for the week?"
    return Draft(who, facts, ask, w, {"h": h, "pay": pay, "o": o, "plus": plus, "tax": tax}, TIME)


@family(check=lambda p: _hours_until(p["size"] - p["start"], p["a"] + p["b"] - p["out"]))
def tank(d: Draw) -> Draft:
    """(size - start) / (a + b - out) minutes."""
    who = d.person()
    net, out, t = d.sized(3, 9, 19), d.sized(2, 5, 12), d.sized(3, 9, 24)
    start = d.sized(5, 40, 199)
    size, b = start + net * t, d.between(2, net + out - 2)
    a = net + out - b
    d.need(a != b)
    w = Work()
    space = w.sub("Space:", size, start, unit=LITER)
    flow = w.add("Both pipes:", a, b, unit=LITER)
    gain = w.sub("Per minute", flow, out, unit=LITER)
    w.div("Time:", space, gain, unit=MINUTE)
    facts = [
        f"A tank holds {size} liters and has {start} liters of water in it.",
        f"{who.name} opens two pipes: one lets in {LITER.of(a)} per minute, the other {b}.",
        f"A hole lets {LITER.of(out)} per minute run out.",
    ]
    ask = "How many minutes does it take until the tank is full?"
    return Draft(
        who, facts, ask, w, {"size": size, "start": start, "a": a, "b": b, "out": out}, TIME
    )


@family(check=lambda p: (p["far"] + p["back"]) * p["price"] // p["per"] - p["gift"])
def fuel(d: Draw) -> Draft:
    """(far + back) / per * price - gift."""
    who, x = d.person(), d.pick(THINGS)
    per, liters, price = d.sized(4, 9, 15), d.sized(4, 12, 40), d.sized(2, 4, 9)
    whole = per * liters
    far = d.between(whole // 3, whole // 2)
    back = whole - far
    d.need(far > 1)
    w = Work()
    trip = w.add("The trip is", far, back, unit=KM)
    used = w.div("It takes", trip, per, unit=LITER)
    cost = w.mul("It costs", used, price, unit="$")
    gift = d.between(2, cost - 2)
    w.sub(f"{who.name} pays", cost, gift, unit="$")
    facts = [
        f"{who.name} drives {far} km to sell {x.many} and takes another road of {back} km home.",
        f"The car goes {per} km on one liter of fuel.",
        f"A liter costs ${price}, and a friend gives {who.name} ${gift} for the fuel.",
    ]
    ask = f"How many dollars does the fuel of the whole trip cost {who.name} in the end?"
    return Draft(
        who,
        facts,
        ask,
        w,
        {"far": far, "back": back, "per": per, "price": price, "gift": gift},
        TIME,
    )
