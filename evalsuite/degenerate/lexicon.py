"""A small model of English: function words, common words, pairs that no sentence holds."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """Return the words of a list written as text."""
    return frozenset(text.split())


FUNCTION = words(
    """the a an of to in on at by for with from into onto over under after before than as per is are
    was were be been being has have had do does did will would can could should must may might and
    or but so if then because since while when where how what which who whose why that this these
    those there here it its he she they we you i his her their our your my him them us me not no
    each every all both half some any many much more most less least few other another one two
    three four five six seven eight nine ten up down out off about only also too very just still
    again together altogether total left first second third next last now until between during
    through thus therefore hence finally let let's find get gets need needs make makes made take
    takes give gives cost costs same per don't doesn't didn't can't it's that's there's"""
)

# Function words of other languages that are no English words.
FOREIGN = words(
    """der das und ist nicht ein eine mit auf für sind wird nach auch dann noch von den dem zum bei
    el los las una del por para con que es como más pero está son le les des une dans pour est sur
    avec qui sont donc plus pas il lo gli della che di nella non sono per è anche um uma não com
    são mais ao het een van voor zijn niet ook maar och att som är för inte det jest nie się na i
    w z ve bir için bu"""
) - frozenset(("i", "per", "z", "w", "na", "para", "con", "plus", "pas", "den", "van", "son", "is"))

COMMON = words(
    """able above across add added adds age ages ago alone along already always amount answer apart
    apple area around ask away back bag bags ball bananas base because begin best better big bike
    bill birthday block blue board book books both bottle bought box boxes boy boys bread break
    bring brings brother brown bus buy buys cake call came candies candy car card cards carry cars
    cat cent cents chair change charge cheap check chicken children city class clean clock close
    coffee coin coins cold collect color come comes compare complete contain cook cookies cost
    count cover cow create cup cups cut daily date daughter day days decide deep difference dime
    dinner discount divide divided dog dogs dollar dollars done door double dozen draw drink drive
    drives drop during early earn earned earns east eat eats egg eggs either else empty end enough
    enter equal equals even evening ever extra eye face fact fair fall family far farm fast father
    feed feet fill final finish fish floor flower flowers food foot forget form found fraction free
    friend friends front fruit full game garden gas gave girl girls given goes gold gone good grade
    grams grass great green ground group grow grows guess hand happen hard hat head hear heart
    height help high hold hole home hope horse hour hours house hundred idea inch inches include
    increase inside interest item job juice keep keeps kept key kids kilograms kind kitchen know
    land large late later lead learn leave leaves leaving length letter level life light like line
    list liter liters little live load long longer look lose loses loss lost lot love low lunch
    machine mark market matter mean means measure meat meet mile miles milk mind minute minutes
    miss money month months morning mother move multiply music name near needed never new nickel
    night none normal north note notice number numbers object odd office often oil old once open
    orange order original outside own pack page pages paid paint pair pants paper parents part
    parts party pass past path pay pays pen pencil pencils penny people percent percentage person
    pet phone pick picture piece pieces pizza place plan plant plants play point points pool pound
    pounds price problem profit put puts quarter question quick quite race rain ran rate reach read
    ready real receive red remain remaining remember rent rest result return rice ride right road
    room round row rows run runs safe said salary sale same sand save saved saves say school score
    season seat see sell sells send sent set shape share she'll shirt shoes shop short show sick
    side sign simple single sister sit size sleep slices slow small snack snow sold soon sort south
    spend spends spent split spot spring stand star start started starts stay step steps stick
    still stop stops store story street string student students study subtract such sugar sum
    summer sun sure swim table tail talk tank tax tea teacher team tell test thing things think
    thirty thousand ticket tickets time times tip today told took top town toy toys train travel
    tree trees trip trips truck true try turn twelve twenty twice type uncle unit use used uses
    usual value visit wait walk wall want warm wash water way week weekend weeks weigh weighs
    weight went west white whole wide width wife win winter within without woman women wood word
    words work worked works world worth write wrong yard yards year years yellow yes yesterday
    young zero"""
)
KNOWN = FUNCTION | COMMON

ENDINGS = ("s", "es", "ed", "d", "ing", "er", "ers", "ly", "'s", "’s", "y", "n", "r", "st", "est")

ABBREVIATIONS = words(
    """min mins hr hrs sec secs km cm mm kg lb lbs oz ft yd mi mph kph am pm pt qt gal doz temp avg
    approx est max num amt tot mon tue tues wed thu thur thurs fri sat sun jan feb mar apr jun jul
    aug sep sept oct nov dec st nd rd th vs etc eq ex no ans sq cu ml mg kw kwh hp mr mrs ms dr jr
    sr int def str len var val sum pos neg div mult sub add info app ad bro sis mom dad grandma
    photo math maths exam lab gym bike phone fridge ok tv pc id ai us uk usd eur"""
)

LEGITIMATE_DOUBLES = words(
    """very had that so no bye ha knock tick la really many much long far again more one do ho na
    blah tock hip choo please well now there's too win boo wee hush tut night yes ding dong woof
    beep quack go chop half x o can will her"""
)

_BE = ("is", "are", "was", "were")
_HE = ("he", "she", "they", "we")
_STOPS = (".", ",", ";", "=", ")", ":")
_AFTER = {
    ("the",): (*_STOPS, *_BE, *_HE, "the", "a", "an", "of", "for", "and", "or", "with", "from",
               "has", "have", "it", "so", "then", "+", "*", "there", "be", "will", "would"),
    ("an",): (*_STOPS, *_BE, *_HE, "the", "a", "of", "to", "for", "and", "with", "from", "has"),
    ("a",): (*_HE, "the", "an", "of", "from", "so", "then", "there"),
    ("of",): ("is", "are", "was", "were", "of", "=", "then", "so", "he", "she", "they", "for", ";"),
    ("to",): ("is", "was", "were", "of", "=", "to", "are"),
    ("in", "with", "from", "by", "at", "for"): ("is", "are", "was", "of", "=", "+", "has"),
    _BE: (*_BE, "has", "have", "had", "of"),
    ("and", "or"): (".", ";", "=", "and", "or", "*", ")", "of"),
    (*_HE, "it"): ("the", "a", "an", "of", "he", "she", "they", "="),
    ("has", "have", "had"): ("has", "have"),
    ("their", "its", "our", "your", "my"): (*_STOPS, *_BE, "the", "a", "an", "of", "has", "and",
                                            "he", "she", "they"),
    ("his",): (*_BE, "the", "a", "an", "of", "has", "he", "she", "they", "="),
    ("so", "then"): (".", "=", "of", "*"),
    ("there",): ("of", "the", "has", "="),
    ("every",): ("the", "a", "an", "of", "is", "are", ".", ",", "="),
    ("+", "*", "/", "×", "÷"): ("=", "+", "*", ".", ",", ")", ";", "/", "in", "is", "for", "and",
                                "are"),
    ("-",): ("=",),
    ("=",): ("=", ",", ".", ";", "+", "*", "/", ")", "in", "is", "are", "of", "and", "for"),
}  # fmt: skip
IMPOSSIBLE = frozenset(
    (first, second) for firsts, seconds in _AFTER.items() for first in firsts for second in seconds
)

# Words that begin a sentence and keep their small letter inside one.
OPENERS = words(
    """The He She They There So Then It This That These We After Since With When If In On At For
    Each Every Next Now But And Of Is Are Altogether Together Therefore Thus Finally His Their
    Her How What From By As All Half Twice"""
)
