"""Compares what a page shows with what was printed."""
import re

# Time by which a duration may differ from the page, and a part of it: what is left of 10 minutes depends on the machine.
DIFFERENCE_S_MAX = 2
DIFFERENCE_PART_MAX = 0.02
UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}
DURATION = re.compile(r'(_us":|retry-after: )(\d+|…)|(?<![\w.])(\d+(?:\.\d+)?) (µs|ms|s|min|h)\b')


def durations(text):
    """`text` with a mark instead of each duration, and the durations in seconds."""
    found = []

    def mark(match):
        name, number, amount, unit = match.groups()
        if number == "…":
            found.append(None)
        elif name:
            found.append(int(number) * UNITS["us" if name.startswith("_us") else "s"])
        else:
            found.append(float(amount) * UNITS[unit])
        return f"{name or ''}TIME"
    # `9 min 59 s` is one duration.
    text = re.sub(r"(\d+) min (\d+) s\b", lambda match: f"{int(match[1]) * 60 + int(match[2])} s", text)
    return DURATION.sub(mark, text), found


def is_shown(shown, printed):
    """Whether a page shows what was printed, but for dates, hashes and durations; an ellipsis leaves anything out.

    >>> is_shown('full in 10 min', 'full in 9 min 49 s'), is_shown('full in 1 s', 'full in 5 s')
    (True, False)
    >>> is_shown('{"reset_after_us":600000000}', '{"reset_after_us":599990000}'), is_shown('4 of 5', '3 of 5')
    (True, False)
    >>> is_shown('head …', 'head 5feb'), is_shown('head … end', 'head 5feb'), is_shown('key #12ab', 'key #34cd')
    (True, False, True)
    """
    def plain(text):
        text = re.sub(r"\r$|^date: .*|(?<=#)[0-9a-f]+", "", text.strip(), flags=re.M)
        return re.sub(r"\n{2,}", "\n", text)
    (shown, expected), (printed, got) = durations(plain(shown)), durations(plain(printed))
    if "…" in shown:
        pattern = ".*".join(re.escape(part) for part in shown.split("…"))
        return re.fullmatch(pattern, printed, re.S) is not None
    return shown == printed and all(
        one is None or abs(one - other) <= max(DIFFERENCE_S_MAX, DIFFERENCE_PART_MAX * one)
        for one, other in zip(expected, got))
