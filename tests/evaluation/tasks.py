"""Sixty small bugs, each in a module of its own with a check that fails until it is mended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Bug:
    """A module with a bug: what is wrong in it, what would be right, and what has to hold then."""

    name: str
    code: str
    wrong: str
    right: str
    check: str

    @property
    def module(self) -> str:
        return f"{self.name}.py"

    @property
    def mended(self) -> str:
        """The module without the bug."""
        return self.code.replace(self.wrong, self.right)

    @property
    def prompt(self) -> str:
        """What an agent is asked."""
        return (
            f"`python3 -B check.py` fails because of a bug in {self.module}. Mend the bug with as small a change as "
            "possible, run the check again, and say in a sentence what was wrong. Do not change check.py."
        )

    @property
    def check_module(self) -> str:
        """The module that fails until the bug is mended."""
        checks = "\n".join(f"assert {one.strip()}" for one in self.check.split(" & "))
        return f"from {self.name} import *\n\n{checks}\nprint('all is well')\n"

    def write(self, folder: Path) -> None:
        """Lay the repository out."""
        (folder / self.module).write_text(self.code)
        (folder / "check.py").write_text(self.check_module)


def _bug(name: str, code: str, wrong: str, right: str, check: str) -> Bug:
    assert code.count(wrong) == 1, name
    return Bug(name, code, wrong, right, check)


BUGS = [
    _bug(
        "last_item",
        "def last(items):\n    return items[len(items)]\n",
        "[len(items)]",
        "[-1]",
        "last([1, 2]) == 2",
    ),
    _bug(
        "inclusive_sum",
        "def total(n):\n    return sum(range(1, n))\n",
        "range(1, n)",
        "range(1, n + 1)",
        "total(4) == 10",
    ),
    _bug(
        "mean_value",
        "def mean(xs):\n    return sum(xs) // len(xs)\n",
        "//",
        "/",
        "mean([1, 2]) == 1.5",
    ),
    _bug(
        "mutable_default",
        "def add(x, xs=[]):\n    xs.append(x)\n    return xs\n",
        "xs=[]):\n",
        "xs=None):\n    xs = [] if xs is None else xs\n",
        "add(1) == [1] & add(2) == [2]",
    ),
    _bug(
        "leap_year",
        "def leap(y):\n    return y % 4 == 0\n",
        "y % 4 == 0",
        "y % 4 == 0 and (y % 100 != 0 or y % 400 == 0)",
        "not leap(1900) & leap(2000) & leap(2024)",
    ),
    _bug(
        "vowels",
        "def vowels(s):\n    return sum(c in 'aeiou' for c in s)\n",
        "for c in s",
        "for c in s.lower()",
        "vowels('Otter') == 2",
    ),
    _bug(
        "reverse_words",
        "def turned(s):\n    return ' '.join(s.split()[1::-1])\n",
        "[1::-1]",
        "[::-1]",
        "turned('a b c') == 'c b a'",
    ),
    _bug(
        "median",
        "def median(xs):\n    return xs[len(xs) // 2]\n",
        "return xs[",
        "return sorted(xs)[",
        "median([3, 1, 2]) == 2",
    ),
    _bug(
        "clamp",
        "def clamp(x, low, high):\n    return min(low, max(x, high))\n",
        "min(low, max(x, high))",
        "max(low, min(x, high))",
        "clamp(5, 0, 3) == 3 & clamp(-1, 0, 3) == 0",
    ),
    _bug(
        "palindrome",
        "def same(s):\n    return s == s[::-1]\n",
        "return s",
        "s = s.lower()\n    return s",
        "same('Anna')",
    ),
    _bug(
        "factorial",
        "def fact(n):\n    return 0 if n == 0 else n * fact(n - 1)\n",
        "return 0",
        "return 1",
        "fact(4) == 24",
    ),
    _bug(
        "fibonacci",
        "def fib(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a\n    return a\n",
        "a, b = b, a\n",
        "a, b = b, a + b\n",
        "fib(7) == 13",
    ),
    _bug(
        "primes",
        "def prime(n):\n    return all(n % d for d in range(2, n))\n",
        "return all",
        "return n > 1 and all",
        "not prime(1) & prime(7)",
    ),
    _bug(
        "unique",
        "def unique(xs):\n    return list(set(xs))\n",
        "list(set(xs))",
        "list(dict.fromkeys(xs))",
        "unique([30, 1, 30, 2]) == [30, 1, 2]",
    ),
    _bug(
        "flatten",
        "def flat(xs):\n    return [x for x in xs]\n",
        "for x in xs]",
        "for inner in xs for x in inner]",
        "flat([[1], [2, 3]]) == [1, 2, 3]",
    ),
    _bug(
        "counter",
        "def counts(s):\n    found = {}\n    for c in s:\n        found[c] = 1\n    return found\n",
        "= 1",
        "= found.get(c, 0) + 1",
        "counts('aba') == {'a': 2, 'b': 1}",
    ),
    _bug(
        "merge_maps",
        "def merged(a, b):\n    return {**b, **a}\n",
        "{**b, **a}",
        "{**a, **b}",
        "merged({'x': 1}, {'x': 2}) == {'x': 2}",
    ),
    _bug(
        "chunks",
        "def chunks(xs, n):\n    return [xs[i:n] for i in range(0, len(xs), n)]\n",
        "xs[i:n]",
        "xs[i:i + n]",
        "chunks([1, 2, 3], 2) == [[1, 2], [3]]",
    ),
    _bug(
        "rotate",
        "def rotated(xs, n):\n    return xs[n:] + xs[n:]\n",
        "+ xs[n:]",
        "+ xs[:n]",
        "rotated([1, 2, 3], 1) == [2, 3, 1]",
    ),
    _bug(
        "transpose",
        "def turned(m):\n    return list(zip(m))\n",
        "zip(m)",
        "zip(*m)",
        "turned([[1, 2], [3, 4]]) == [(1, 3), (2, 4)]",
    ),
    _bug(
        "to_celsius",
        "def celsius(f):\n    return f - 32 * 5 / 9\n",
        "f - 32 *",
        "(f - 32) *",
        "celsius(212) == 100",
    ),
    _bug(
        "title_case",
        "def titled(s):\n    return s.capitalize()\n",
        "s.capitalize()",
        "' '.join(w.capitalize() for w in s.split())",
        "titled('sea otter') == 'Sea Otter'",
    ),
    _bug(
        "binary_search",
        "def found(xs, x):\n    low, high = 0, len(xs) - 1\n    while low < high:\n        mid = (low + high) // 2\n        if xs[mid] == x:\n            return mid\n        if xs[mid] < x:\n            low = mid + 1\n        else:\n            high = mid - 1\n    return -1\n",
        "while low < high",
        "while low <= high",
        "found([1, 3, 5], 5) == 2 & found([1], 1) == 0",
    ),
    _bug(
        "gcd",
        "def gcd(a, b):\n    while b:\n        a, b = b, a // b\n    return a\n",
        "a // b",
        "a % b",
        "gcd(12, 18) == 6",
    ),
    _bug(
        "power",
        "def power(x, n):\n    result = 0\n    for _ in range(n):\n        result *= x\n    return result\n",
        "result = 0",
        "result = 1",
        "power(2, 5) == 32",
    ),
    _bug(
        "parse_pairs",
        "def pairs(s):\n    return dict(p.split('=') for p in s.split(';'))\n",
        "split('=')",
        "split('=', 1)",
        "pairs('a=1=2;b=3') == {'a': '1=2', 'b': '3'}",
    ),
    _bug(
        "strip_prefix",
        "def bare(s, prefix):\n    return s.lstrip(prefix)\n",
        "lstrip(prefix)",
        "removeprefix(prefix)",
        "bare('aab', 'a') == 'ab'",
    ),
    _bug(
        "none_check",
        "def or_default(x, default):\n    return x or default\n",
        "x or default",
        "default if x is None else x",
        "or_default(0, 5) == 0 & or_default(None, 5) == 5",
    ),
    _bug(
        "rounding",
        "def cents(euros):\n    return int(euros * 100)\n",
        "int(euros * 100)",
        "round(euros * 100)",
        "cents(0.29) == 29",
    ),
    _bug(
        "hour_format",
        'def clock(h):\n    return f\'{h % 12} {"pm" if h > 12 else "am"}\'\n',
        "h > 12",
        "h >= 12",
        "clock(12).endswith('pm')",
    ),
    _bug(
        "percent",
        "def percent(part, whole):\n    return part / whole\n",
        "part / whole",
        "100 * part / whole",
        "percent(1, 4) == 25",
    ),
    _bug(
        "any_all",
        "def all_even(xs):\n    return any(x % 2 == 0 for x in xs)\n",
        "any(",
        "all(",
        "not all_even([1, 2]) & all_even([2, 4])",
    ),
    _bug(
        "copy_list",
        "def with_item(xs, x):\n    ys = xs\n    ys.append(x)\n    return ys\n",
        "ys = xs",
        "ys = list(xs)",
        "(lambda a: (with_item(a, 1), a)[1])([]) == []",
    ),
    _bug(
        "sort_copy",
        "def ordered(xs):\n    return xs.sort()\n",
        "xs.sort()",
        "sorted(xs)",
        "ordered([2, 1]) == [1, 2]",
    ),
    _bug(
        "numbers_sorted",
        "def ordered(xs):\n    return sorted(xs)\n",
        "sorted(xs)",
        "sorted(xs, key=int)",
        "ordered(['10', '9']) == ['9', '10']",
    ),
    _bug(
        "second_largest",
        "def second(xs):\n    return sorted(xs)[-2]\n",
        "sorted(xs)",
        "sorted(set(xs))",
        "second([3, 3, 2]) == 2",
    ),
    _bug(
        "overlap",
        "def overlap(a, b):\n    return a[0] < b[0] and b[1] < a[1]\n",
        "a[0] < b[0] and b[1] < a[1]",
        "a[0] < b[1] and b[0] < a[1]",
        "overlap((0, 2), (1, 3)) & not overlap((0, 1), (2, 3))",
    ),
    _bug(
        "stack_pop",
        "class Stack:\n    def __init__(self):\n        self.items = []\n    def push(self, x):\n        self.items.append(x)\n    def pop(self):\n        return self.items.pop(0)\n",
        "pop(0)",
        "pop()",
        "(lambda s: (s.push(1), s.push(2), s.pop())[2])(Stack()) == 2",
    ),
    _bug(
        "queue_order",
        "class Queue:\n    def __init__(self):\n        self.items = []\n    def put(self, x):\n        self.items.insert(0, x)\n    def get(self):\n        return self.items.pop(0)\n",
        "insert(0, x)",
        "append(x)",
        "(lambda q: (q.put(1), q.put(2), q.get())[2])(Queue()) == 1",
    ),
    _bug(
        "class_state",
        "class Bag:\n    items = []\n    def add(self, x):\n        self.items.append(x)\n",
        "    items = []\n",
        "    def __init__(self):\n        self.items = []\n",
        "(lambda a, b: (a.add(1), b.items)[1])(Bag(), Bag()) == []",
    ),
    _bug(
        "late_binding",
        "def adders():\n    return [lambda x: x + n for n in range(3)]\n",
        "lambda x: x",
        "lambda x, n=n: x",
        "[f(0) for f in adders()] == [0, 1, 2]",
    ),
    _bug(
        "generator_once",
        "def twice(xs):\n    ys = (x * 2 for x in xs)\n    return sum(ys), len(list(ys))\n",
        "(x * 2 for x in xs)",
        "[x * 2 for x in xs]",
        "twice([1, 2]) == (6, 2)",
    ),
    _bug(
        "swallowed",
        "def number(s):\n    try:\n        return int(s)\n    except:\n        return 0\n",
        "except:\n        return 0",
        "except ValueError:\n        return None",
        "number('x') is None & number('7') == 7",
    ),
    _bug(
        "key_error",
        "def age(person):\n    return person['age']\n",
        "person['age']",
        "person.get('age')",
        "age({}) is None & age({'age': 3}) == 3",
    ),
    _bug(
        "integer_keys",
        "import json\n\ndef back(d):\n    return json.loads(json.dumps(d))\n",
        "return json.loads(json.dumps(d))",
        "return {int(k): v for k, v in json.loads(json.dumps(d)).items()}",
        "back({1: 'a'}) == {1: 'a'}",
    ),
    _bug(
        "join_numbers",
        "def joined(xs):\n    return ','.join(xs)\n",
        "join(xs)",
        "join(map(str, xs))",
        "joined([1, 2]) == '1,2'",
    ),
    _bug(
        "csv_line",
        "def cells(line):\n    return line.split(', ')\n",
        "line.split(', ')",
        "[cell.strip() for cell in line.split(',')]",
        "cells('a,b, c') == ['a', 'b', 'c']",
    ),
    _bug(
        "snake_case",
        "import re\n\ndef snake(s):\n    return re.sub('[A-Z]', lambda m: '_' + m[0], s).lower()\n",
        ".lower()",
        ".lower().lstrip('_')",
        "snake('SeaOtter') == 'sea_otter'",
    ),
    _bug(
        "regex_dot",
        "import re\n\ndef is_version(s):\n    return bool(re.fullmatch(r'\\d+.\\d+', s))\n",
        "\\d+.\\d+",
        "\\d+\\.\\d+",
        "is_version('1.2') & not is_version('1x2')",
    ),
    _bug(
        "date_diff",
        "from datetime import date\n\ndef nights(a, b):\n    return (b - a).days + 1\n",
        " + 1",
        "",
        "nights(date(2026, 1, 1), date(2026, 1, 3)) == 2",
    ),
    _bug(
        "month_end",
        "import calendar\n\ndef last_day(y, m):\n    return calendar.monthrange(y, m)[0]\n",
        "[0]",
        "[1]",
        "last_day(2026, 2) == 28",
    ),
    _bug(
        "matrix_rows",
        "def grid(n):\n    return [[0] * n] * n\n",
        "[[0] * n] * n",
        "[[0] * n for _ in range(n)]",
        "(lambda g: (g[0].__setitem__(0, 1), g[1][0])[1])(grid(2)) == 0",
    ),
    _bug(
        "set_difference",
        "def missing(want, have):\n    return set(have) - set(want)\n",
        "set(have) - set(want)",
        "set(want) - set(have)",
        "missing([1, 2], [1]) == {2}",
    ),
    _bug(
        "hex_colour",
        "def rgb(s):\n    return tuple(int(s[i:i + 2], 10) for i in (1, 3, 5))\n",
        ", 10)",
        ", 16)",
        "rgb('#ff0010') == (255, 0, 16)",
    ),
    _bug(
        "roman",
        "VALUES = {'I': 1, 'V': 5, 'X': 10}\n\ndef arabic(s):\n    return sum(VALUES[c] for c in s)\n",
        "sum(VALUES[c] for c in s)",
        "sum(-VALUES[a] if VALUES[a] < VALUES.get(b, 0) else VALUES[a] for a, b in zip(s, s[1:] + ' '))",
        "arabic('XIV') == 14 & arabic('VI') == 6",
    ),
    _bug(
        "run_length",
        "from itertools import groupby\n\ndef packed(s):\n    return ''.join(f'{c}{len(g)}' for c, g in groupby(s))\n",
        "len(g)",
        "len(list(g))",
        "packed('aab') == 'a2b1'",
    ),
    _bug(
        "deep_get",
        "def deep(d, path):\n    for key in path.split('.'):\n        d = d.get(key)\n    return d\n",
        "d = d.get(key)",
        "d = d.get(key) if isinstance(d, dict) else None",
        "deep({}, 'a.b') is None & deep({'a': {'b': 1}}, 'a.b') == 1",
    ),
    _bug(
        "bounded_cache",
        "class Cache:\n    def __init__(self, size):\n        self.size, self.kept = size, {}\n    def put(self, key, value):\n        self.kept[key] = value\n        if len(self.kept) > self.size:\n            self.kept.popitem()\n",
        "self.kept.popitem()",
        "del self.kept[next(iter(self.kept))]",
        "(lambda c: (c.put(1, 1), c.put(2, 2), list(c.kept))[2])(Cache(1)) == [2]",
    ),
    _bug(
        "word_wrap",
        "def wrapped(words, width):\n    lines, line = [], ''\n    for word in words:\n        if len(line) + len(word) > width:\n            lines.append(line)\n            line = word\n        else:\n            line = f'{line} {word}'.strip()\n    return lines\n",
        "return lines\n",
        "return [*lines, line]\n",
        "wrapped(['aa', 'bb'], 3) == ['aa', 'bb']",
    ),
    _bug(
        "backoff",
        "def pause(attempt):\n    return min(60, 2 * attempt)\n",
        "2 * attempt",
        "2 ** attempt",
        "pause(3) == 8 & pause(10) == 60",
    ),
]
