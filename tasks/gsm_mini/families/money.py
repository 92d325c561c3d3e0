"""Money: change, discounts, saving up, profit, shared bills, coins, prices of packs."""

from __future__ import annotations

from gsm_mini.draw import Draw
from gsm_mini.nouns import BAKED, CENT, COIN, CONTAINERS, GOODS, PACK, WEEK
from gsm_mini.problem import Draft, Work, family

PRICE = frozenset({"price"})


@family(check=lambda p: p["paid"] + p["coupon"] - sum([p["a"]] * p["n"] + [p["b"]] * p["m"]))
def change(d: Draw) -> Draft:
    """paid - (n*a + m*b - coupon)."""
    who, (x, y) = d.person(), d.some(GOODS, 2)
    n, a = d.sized(2, 6, 24), d.sized(2, 9, 39)
    m, b = d.sized(2, 6, 9), d.sized(2, 9, 29)
    coupon = d.extra(2, 5, 19)
    d.need(a != b and coupon < n * a + m * b)
    w = Work()
    first = w.mul(f"The {x.many} cost", n, a, unit="$")
    second = w.mul(f"The {y.many} cost", m, b, unit="$")
    cost = w.add("Together", first, second, unit="$")
    if coupon:
        cost = w.sub("With the coupon", cost, coupon, unit="$")
    paid = cost + d.sized(1, 20, 99)
    w.sub("Left:", paid, cost, unit="$")
    facts = [
        f"{who.name} has ${paid} and goes to the shop.",
        f"{who.He} buys {x.of(n)} for ${a} each and {y.of(m)} for ${b} each.",
    ]
    if coupon:
        facts.append(f"A coupon takes ${coupon} off the total.")
    ask = f"How many dollars does {who.name} have left?"
    return Draft(
        who, facts, ask, w, {"paid": paid, "n": n, "a": a, "m": m, "b": b, "coupon": coupon}
    )


@family(check=lambda p: p["n"] * p["a"] * (100 - p["rate"]) // 100 + p["ship"])
def discount(d: Draw) -> Draft:
    """n*a less a percentage, plus shipping."""
    who, x = d.person(), d.pick(GOODS)
    rate = d.pick((10, 20, 25, 30, 40, 50))
    n, a = d.sized(2, 9, 20), d.sized(2, 20, 60)
    d.need(n * a * rate % 100 == 0)
    ship = d.extra(2, 5, 19)
    w = Work()
    total = w.mul("Full price:", n, a, unit="$")
    off = w.percent("Discount:", total, rate, unit="$")
    price = w.sub("Then", total, off, unit="$")
    if ship:
        w.add("With shipping", price, ship, unit="$")
    facts = [
        f"{who.name} orders {x.of(n)} from a shop.",
        f"{x.a.capitalize()} normally costs ${a}, but today everything is {rate}% off.",
    ]
    if ship:
        facts.append(f"Shipping adds ${ship} after the discount.")
    ask = f"How many dollars does {who.name} pay in all?"
    return Draft(who, facts, ask, w, {"n": n, "a": a, "rate": rate, "ship": ship})


def _weeks_to_goal(p: dict[str, int]) -> int:
    money, weeks = p["start"], 0
    while money < p["goal"]:
        money, weeks = money + p["earn"] - p["spend"], weeks + 1
    return weeks


@family(check=lambda p: _weeks_to_goal(dict(p)))
def saving_goal(d: Draw) -> Draft:
    """(goal - start) / (earn - spend) weeks."""
    who = d.person()
    net, weeks = d.sized(3, 9, 19), d.sized(3, 9, 24)
    spend, start = d.sized(2, 9, 49), d.sized(5, 40, 199)
    earn, goal = net + spend, net * weeks + start
    w = Work()
    each = w.sub(f"Each week {who.he} keeps", earn, spend, unit="$")
    gap = w.sub("Still needed:", goal, start, unit="$")
    w.div("It takes", gap, each, unit=WEEK)
    facts = [
        f"{who.name} wants a bike that costs ${goal} and has saved ${start} so far.",
        f"Every week {who.he} earns ${earn}, spends ${spend} of it and saves the rest.",
    ]
    ask = f"How many weeks does {who.name} need until {who.he} can buy the bike?"
    return Draft(who, facts, ask, w, {"goal": goal, "start": start, "earn": earn, "spend": spend})


@family(check=lambda p: sum(p["k"] * p["price"] - p["cost"] for _ in range(p["n"])) - p["stall"])
def profit(d: Draw) -> Draft:
    """n*k*price - n*cost - stall."""
    who, x, box = d.person(), d.thing(), d.pick(CONTAINERS)
    n, k, price = d.sized(2, 6, 15), d.sized(3, 9, 15), d.sized(2, 4, 8)
    cost, stall = d.sized(2, 9, 29), d.extra(2, 9, 29)
    d.need(n * (k * price - cost) > stall + 5)
    w = Work()
    count = w.mul(f"{who.He} sells", n, k, unit=x)
    income = w.mul("Income:", count, price, unit="$")
    spent = w.mul("Cost:", n, cost, unit="$")
    if stall:
        spent = w.add("With the stall", spent, stall, unit="$")
    w.sub("Profit:", income, spent, unit="$")
    facts = [
        f"{who.name} buys {box.of(n)} of {x.many} for ${cost} per {box.one}.",
        f"Each {box.one} holds {x.of(k)}.",
        f"{who.He} sells all the {x.many} for ${price} each.",
    ]
    if stall:
        facts.append(f"The stall costs {who.name} ${stall} for the day.")
    ask = f"How many dollars of profit does {who.name} make?"
    params = {"n": n, "k": k, "price": price, "cost": cost, "stall": stall}
    return Draft(who, facts, ask, w, params, PRICE)


@family(check=lambda p: (p["n"] * p["a"] + p["m"] * p["b"] + p["tip"]) // p["k"])
def shared_bill(d: Draw) -> Draft:
    """(n*a + m*b + tip) / k."""
    who, (x, y) = d.person(), d.some(BAKED, 2)
    n, a, m, b = d.sized(2, 6, 12), d.sized(2, 9, 24), d.sized(2, 6, 9), d.sized(2, 9, 19)
    k = d.between(3, 8)
    tip = -(n * a + m * b) % k + k * d.between(0, 2)
    d.need(tip > 1 and a != b)
    w = Work()
    first = w.mul(f"The {x.many} cost", n, a, unit="$")
    second = w.mul(f"The {y.many} cost", m, b, unit="$")
    bill = w.add("With the tip", first, second, tip, unit="$")
    w.div("Each pays", bill, k, unit="$")
    facts = [
        f"{who.name} is one of {k} friends in a cafe.",
        f"They order {x.of(n)} at ${a} each and {y.of(m)} at ${b} each.",
        f"They add a tip of ${tip} and share the whole bill equally.",
    ]
    ask = "How many dollars does each friend pay?"
    return Draft(who, facts, ask, w, {"k": k, "n": n, "a": a, "m": m, "b": b, "tip": tip})


@family(check=lambda p: 25 * p["q"] + 10 * p["t"] + 5 * p["f"] - p["cost"])
def coins(d: Draw) -> Draft:
    """25q + 10t + 5f - cost, in cents."""
    who, x = d.person(), d.pick(GOODS)
    q, t, f = d.sized(2, 6, 24), d.sized(2, 9, 40), d.sized(2, 9, 30)
    total = 25 * q + 10 * t + 5 * f
    cost = d.between(total // 4, total - 3)
    w = Work()
    a = w.mul("Quarters:", q, 25, unit=CENT)
    b = w.mul("Dimes:", t, 10, unit=CENT)
    c = w.mul("Nickels:", f, 5, unit=CENT)
    money = w.add("Total:", a, b, c, unit=CENT)
    w.sub("Left:", money, cost, unit=CENT)
    facts = [
        f"{who.name} opens a jar and finds {q} quarters, {t} dimes and {f} nickels.",
        f"With these {COIN.many} {who.he} buys {x.a} for {cost} cents.",
    ]
    ask = f"How many cents does {who.name} have left?"
    return Draft(who, facts, ask, w, {"q": q, "t": t, "f": f, "cost": cost}, PRICE)


@family(check=lambda p: round(p["n"] * (p["b"] / p["j"] - p["a"] / p["k"])))
def pack_prices(d: Draw) -> Draft:
    """n/j*b - n/k*a: what the cheaper packs save on n things."""
    who, x = d.person(), d.thing()
    k, j = d.some((2, 3, 4, 5, 6, 8, 10, 12), 2)
    n = k * j * d.sized(1, 2, 4)
    a, b = d.sized(2, 12, 39), d.sized(2, 12, 39)
    first, second = n // k * a, n // j * b
    d.need(second > first and n < 200)
    w = Work()
    u = w.div("Red shop:", n, k, unit=PACK)
    r = w.mul("That is", u, a, unit="$")
    v = w.div("Blue shop:", n, j, unit=PACK)
    s = w.mul("That is", v, b, unit="$")
    w.sub("Saved:", s, r, unit="$")
    d.need(u > 1 and v > 1)
    facts = [
        f"{who.name} needs {x.of(n)}.",
        f"The red shop sells packs of {k} {x.many} for ${a} per pack.",
        f"The blue shop sells packs of {j} {x.many} for ${b} per pack.",
    ]
    ask = f"How many dollars does {who.name} save by buying all in the red shop, not the blue one?"
    return Draft(who, facts, ask, w, {"n": n, "k": k, "a": a, "j": j, "b": b}, PRICE)
