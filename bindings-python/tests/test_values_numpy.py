"""Numbers of numpy are plain numbers in JSON; arrays are refused with what to pass."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import flovyn
import numpy as np
import pytest
from flovyn import _native
from flovyn.serde import codec_of

PLAIN: list[tuple[Any, Any]] = [
    (np.int64(5), 5),
    (np.uint8(255), 255),
    (np.uint64(2**64 - 1), 2**64 - 1),
    (np.float64(0.1), 0.1),
    (np.float32(0.5), 0.5),
    (np.float16(-0.0), -0.0),
    (np.bool_(True), True),
    (np.str_("a"), "a"),
]


@pytest.mark.parametrize(("value", "plain"), PLAIN, ids=[type(value).__name__ for value, _ in PLAIN])
def test_a_number_is_a_plain_one(value: Any, plain: Any) -> None:
    codec_of(Any).check([value])
    codec_of(dict[str, type(plain)]).check({"a": value})
    stored = _native.decode_json(_native.encode_json([value]))
    assert stored == [plain] and type(stored[0]) is type(plain) and repr(stored[0]) == repr(plain)
    with pytest.raises(flovyn.NotSerializable, match="annotate it as what it is"):
        codec_of(dict[str, Any]).check_state({"a": value})


@pytest.mark.parametrize(
    "value", [value for value, _ in PLAIN[:-1]], ids=[type(value).__name__ for value, _ in PLAIN[:-1]]
)
def test_a_number_of_an_annotated_type_is_rebuilt(value: Any) -> None:
    codec = codec_of(dict[str, type(value)])
    codec.check_state({"a": value})
    assert codec.rebuild is not None
    back = codec.rebuild(_native.decode_json(_native.encode_json({"a": value})))["a"]
    assert type(back) is type(value) and back == value


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (np.array([1, 2]), "tolist"),
        (np.zeros((2, 2)), "tolist"),
        (np.datetime64("2026-01-01"), "astype"),
        (np.timedelta64(1, "s"), "astype"),
        (np.complex64(1j), "plain number"),
        (np.longdouble(1), "plain number"),
        (np.float32("nan"), "finite"),
    ],
    ids=str,
)
def test_what_is_no_plain_number_is_refused(value: Any, advice: str) -> None:
    with pytest.raises(flovyn.NotSerializable, match=advice) as refused:
        codec_of(Any).check({"a": [value]})
    assert refused.value.path == "$.a[0]"


def test_numpy_is_not_loaded_for_other_values() -> None:
    code = (
        "import sys, datetime, flovyn; from flovyn import _native; from flovyn.serde import codec_of;"
        "codec_of(datetime.datetime).check(datetime.datetime(2026, 1, 1)); _native.encode_json({1, 2});"
        "print([name for name in ('numpy', 'pydantic') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
