"""Which encoding a text that is not UTF-8 may be in: the one that makes words of its bytes."""

import re
import unicodedata

#: those of one byte per letter, by script; and those of two bytes
LATIN = ("latin-1", "cp1252", "cp1250", "cp1254", "mac-roman", "cp850")
OTHER_ALPHABETS = ("cp1251", "koi8-r", "cp866", "cp1253", "cp1255", "cp1256")
TWO_BYTES = ("shift_jis", "euc_jp", "euc_kr", "gb18030", "big5")
OLD = ("mac-roman", "cp850", "cp866")  # that are hardly written any more
MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
SCRIPTS = ("LATIN", "CYRILLIC", "GREEK", "HEBREW", "ARABIC", "HIRAGANA", "KATAKANA", "CJK", "HANGUL")
EAST_ASIAN = ("HIRAGANA", "KATAKANA", "CJK")  # one text mixes them
USUAL_SIGNS = "€£¥§°±²³µ·«»½¼‘’“”„–—…%‰×†•、。・「」（）～，：℃"
WORD = re.compile(r"[^\W\d_]+")
DOUBT = 0.35  # how much less plausible an encoding may be and still be shown
RARE_LATIN = 0.6  # the share of letters beyond ASCII from which a word in Latin letters is unlikely
#: letters beyond ASCII that are frequent in the languages of an encoding
WESTERN = frozenset("éèêàâçùûôîïëäöüßñóíáúãõåøæœ")
COMMON_LETTERS = {"cp1250": frozenset("ěščřžýáíéúůďťňąćęłńóśźżőűăâîșțäöüß"), "cp1254": frozenset("şğıİçöüâîû")}
VOWELS = frozenset("аеёиоуыэюяіїєўАЕЁИОУЫЭЮЯІЇЄЎ")
FINAL = frozenset("ךםןףץ")  # forms that Hebrew letters have only at the end of a word
USUAL_VOWELS = (0.2, 0.75)  # the share of vowels in a word
#: first bytes of the characters in use often, which stand at the start of these tables
COMMON_LEADS = {"gb18030": range(0xB0, 0xD8), "euc_kr": range(0xB0, 0xC9), "big5": range(0xA4, 0xC7)}


def advise_encoding(raw: bytes) -> str:
    """What to give as `encoding`, as advice: which one, and if there are several, what each reads."""
    found = likely_encodings(raw) or [("latin-1", "")]
    if len(found) == 1:
        return f'use encoding="{found[0][0]}"'
    (best, word), *others = found
    more = ", ".join(f"{name} if it says {shown!r}" for name, shown in others)
    return f'use encoding="{best}" if the file says {word!r}, {more}'


def likely_encodings(raw: bytes, most: int = 3) -> list[tuple[str, str]]:
    """(encoding, a word it reads) of the likeliest encodings of bytes that are not UTF-8, the best first."""
    if (marked := MARKS.get(raw[:2])) is not None:
        return [(marked, "")]
    scored = []
    for place, name in enumerate((*LATIN, *OTHER_ALPHABETS, *TWO_BYTES)):
        try:
            text = raw.decode(name)
        except UnicodeDecodeError:
            continue
        words: list[str] = [word for word in WORD.findall(text) if not word.isascii()]
        scored.append((_plausibility(text, words, name, raw), -place, name, max(words, key=len, default="")))
    scored.sort(reverse=True)
    found: list[tuple[str, str]] = []
    for score, _, name, word in scored:
        if (not found or score > max(0.0, scored[0][0] - DOUBT)) and word not in [shown for _, shown in found]:
            found.append((name, word))
    return found[:most]


def _plausibility(text: str, words: list[str], name: str, raw: bytes) -> float:
    """From about -1 to 1: how much of what is beyond ASCII looks like text that people write."""
    others = [sign for sign in text if not sign.isascii() and not sign.isalpha()]
    points = [0.5 if sign in USUAL_SIGNS else -1.0 for sign in others]
    points += [_of_word(word, name) for word in words for _ in range(sum(not sign.isascii() for sign in word))]
    score = sum(points) / len(points) if points else 0.0
    score -= 0.3 if name in OLD else 0.0
    return score - 0.5 * (1 - _common_share(raw, name)) if name in TWO_BYTES else score


def _of_word(word: str, encoding: str) -> float:
    """1 for a word in one script with its capitals at the start, less for others."""
    scripts = {script for sign in word if (script := _script(sign))}
    if len(scripts) != 1:
        return -1.0
    if not word.isupper() and any(sign.isupper() for sign in word[1:]):
        return -0.5  # such as KOI8 read as Windows-1251, where capitals and small letters change places
    beyond, script = [sign for sign in word if not sign.isascii()], scripts.pop()
    if script == "LATIN" and len(word) == 1:
        return 0.5 if word.islower() else 0.2
    if script == "LATIN":
        if len(word) > 2 and len(beyond) / len(word) >= RARE_LATIN:
            return -0.5
        usual = COMMON_LETTERS.get(encoding, WESTERN)
        return 0.9 if all(sign.lower() in usual or sign in usual for sign in beyond) else 0.4
    if script == "CYRILLIC" and len(word) > 2:
        share = sum(sign in VOWELS for sign in word) / len(word)
        return 1.0 if USUAL_VOWELS[0] <= share <= USUAL_VOWELS[1] else 0.3
    if script == "HEBREW" and len(word) > 1:
        return -0.5 if any(sign in FINAL for sign in word[:-1]) else 1.1 if word[-1] in FINAL else 1.0
    is_halfwidth = any(0xFF61 <= ord(sign) <= 0xFF9F for sign in word)
    is_broken = "ς" in word[:-1] or (len(word) == 1 and script != "EAST")
    return -0.5 if is_halfwidth or is_broken else 1.0


def _script(sign: str) -> str | None:
    name = unicodedata.name(sign, "")
    found = next((script for script in SCRIPTS if script in name.split(" ")[0]), None)
    return "EAST" if found in EAST_ASIAN else found


def _common_share(raw: bytes, name: str) -> float:
    """The share of two-byte characters that are in use often: of Japanese texts, kana."""
    text = raw.decode(name)
    beyond = [sign for sign in text if not sign.isascii()]
    if not beyond:
        return 0.0
    if name in ("shift_jis", "euc_jp"):
        kana = sum(
            "HIRAGANA" in unicodedata.name(sign, "") or "KATAKANA" in unicodedata.name(sign, "") for sign in beyond
        )
        return min(1.0, 0.7 + 2 * kana / len(beyond))
    leads = [sign.encode(name)[0] for sign in beyond]
    return sum(lead in COMMON_LEADS[name] for lead in leads) / len(leads)
