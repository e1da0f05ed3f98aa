# SPDX-License-Identifier: Apache-2.0
"""Calls that the core carries out without Python must end as Python would have ended them."""

import inspect
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import braid
import numpy as np
import pytest
from braid import _core
from braid._array import calls as core_calls
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from slowness import limit

pytestmark = pytest.mark.unit

DOUBLE = np.dtype("f8")
COLLECTIVES = {
    "all_reduce": ("x", "op", "out"),
    "reduce": ("x", "op", "root", "out"),
    "broadcast": ("x", "root"),
    "all_gather": ("x", "out"),
    "gather": ("x", "root", "out"),
    "scatter": ("x", "root", "out"),
    "reduce_scatter": ("x", "op", "out"),
    "all_to_all": ("x", "out"),
    "barrier": (),
}


class Own(np.ndarray):
    """Somebody's subclass."""


class Text(str):
    """Equal to nothing, so that it is no key of a dict."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


def some_dtypes() -> list[np.dtype[Any]]:
    names = ["f8", "f4", "f2", "i1", "i2", "i4", "l", "q", "u1", "u2", "u4", "L", "Q", "?", "F", "D"]
    odd = [
        ">f8",
        ">i2",
        "g",
        "G",
        "O",
        "M8[s]",
        "m8[s]",
        "S8",
        "U2",
        "V8",
        "f8,i4",
        np.dtype("f8", metadata={"a": 1}),
    ]
    try:
        import ml_dtypes
    except ImportError:
        own = []
    else:
        own = [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3b11fnuz]
    return [np.dtype(each) for each in (*names, *odd, *own)]


@dataclass(frozen=True)
class Sketch:
    """An array that can be made twice."""

    dtype: np.dtype[Any] = DOUBLE
    shape: tuple[int, ...] = (4,)
    layout: str = "plain"

    def make(self) -> Any:
        count = int(np.prod(self.shape))
        plain = (np.arange(2 * count + 1) % 3).astype("i1").astype(self.dtype)
        array = plain[:count].reshape(self.shape)
        if self.layout == "strided":
            pairs = plain[: 2 * count].reshape(*self.shape, 2)
            array = pairs[..., 0]
        elif self.layout == "fortran":
            array = np.asfortranarray(array)
        elif self.layout == "backwards":
            array = array[::-1] if self.shape else array
        elif self.layout == "unaligned" and not self.dtype.hasobject:
            memory = bytearray(b"\0" + array.tobytes())
            array = np.frombuffer(memory, self.dtype, count, 1).reshape(self.shape)
        elif self.layout == "fixed":
            array.flags.writeable = False
        elif self.layout == "own":
            array = array.view(Own)
        elif self.layout == "masked":
            array = np.ma.masked_array(array)
        elif self.layout == "buffer":
            return memoryview(bytearray(count))
        elif self.layout == "list":
            return array.tolist()
        return array


LAYOUTS = ("strided", "fortran", "backwards", "unaligned", "fixed", "own", "masked", "buffer", "list")
SHAPES = [(4,), (1,), (), (0,), (3,), (2, 2), (1, 4), (4, 1), (0, 2)]
ops = st.sampled_from(
    [*_core.reduce_ops(), "prod", "median", "", "\ud800", None, b"sum", np.str_("sum"), Text("sum")]
)
roots = st.sampled_from([0, 0, 0, 1, -1, 2**70, True, False, np.int64(0), 0.0, None])


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, int, dict[str, Any]]:
    """Draw a collective, how many arguments go by position, and the arguments."""
    name = draw(st.sampled_from(list(COLLECTIVES)))
    # Mostly right, with one or two things changed: else nearly all calls would be wrong.
    layouts = st.sampled_from(["plain"] * 12 + list(LAYOUTS))
    dtype, shape = draw(st.sampled_from(some_dtypes())), draw(st.sampled_from(SHAPES))
    other_dtype = draw(st.sampled_from([dtype] * 9 + some_dtypes()))
    other_shape = draw(st.sampled_from([shape] * 9 + SHAPES))
    out = draw(st.sampled_from(["other", "other", "none", "x"]))
    everything = {
        "x": Sketch(dtype, shape, draw(layouts)),
        "op": draw(st.one_of(st.just("sum"), ops)),
        "root": draw(roots),
        "out": Sketch(other_dtype, other_shape, draw(layouts))
        if out == "other"
        else None
        if out == "none"
        else "x",
    }
    taken = [each for each in COLLECTIVES[name] if each == "x" or draw(st.integers(0, 3))]
    if not draw(st.integers(0, 9)) and taken:
        taken.remove("x")
    if not draw(st.integers(0, 19)):
        taken.append(draw(st.sampled_from(["op", "counts", "nonsense"])))
    arguments = {each: everything.get(each) for each in dict.fromkeys(taken)}
    return name, draw(st.integers(0, len(arguments))), arguments


def outcome(method: Any, comm: braid.Communicator, by_position: int, sketches: dict[str, Any]) -> Any:
    """Return what a call ends with, and the arrays after it, so that they can be compared."""
    made = {name: each.make() if isinstance(each, Sketch) else each for name, each in sketches.items()}
    if sketches.get("out") == "x":
        made["out"] = made.get("x")
    names = list(made)
    by_name = {name: made[name] for name in names[by_position:]}
    try:
        result = method(comm, *(made[name] for name in names[:by_position]), **by_name)
    except (TypeError, ValueError, braid.CommunicatorError, OverflowError) as error:
        end: Any = (type(error), str(error))
    else:
        end = [name for name in names if result is made[name]] or looks(result)
    return end, {name: looks(each) for name, each in made.items()}


def looks(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return bytes(value) if isinstance(value, memoryview) else repr(value)
    by_value = value.dtype.hasobject or value.dtype.char in "gG"  # long doubles have gaps
    contents = value.tolist() if by_value else value.tobytes()
    return type(value), value.dtype, value.shape, value.strides, value.flags.writeable, contents


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[braid.Communicator]:
    with braid.Communicator(f"file://{tmp_path_factory.mktemp('meet')}", rank=0, size=1) as comm:
        yield comm


@settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(call=calls())
@example(call=("all_to_all", 2, {"x": Sketch(), "out": "x"}))
@example(call=("all_gather", 2, {"x": Sketch(np.dtype("l")), "out": Sketch(np.dtype("q"))}))
@example(call=("all_reduce", 1, {"x": Sketch(), "out": Sketch(shape=(2, 2))}))
@example(call=("all_gather", 2, {"x": Sketch(layout="strided"), "out": Sketch()}))
@example(call=("scatter", 1, {"x": Sketch(), "out": Sketch(layout="strided")}))
@example(call=("broadcast", 1, {"x": Sketch(layout="fixed")}))
@example(call=("all_reduce", 2, {"x": Sketch(np.dtype("F")), "op": "max"}))
def test_both_ways_agree(alone: braid.Communicator, call: tuple[str, int, dict[str, Any]]) -> None:
    name, by_position, arguments = call
    short = getattr(braid.Communicator, name)
    assert outcome(short, alone, by_position, arguments) == outcome(
        short.__wrapped__, alone, by_position, arguments
    )


def test_plain_calls_run_no_python(alone: braid.Communicator, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("not plain")

    for name in COLLECTIVES.keys() - {"barrier"}:
        monkeypatch.setattr(core_calls, name, fail)
    monkeypatch.setattr(braid.Communicator, "_run", fail)
    for dtype in some_dtypes():
        x, out = np.ones(3).astype(dtype), np.zeros(3).astype(dtype)
        if str(dtype) in _core.dtypes():
            assert alone.all_reduce(x) is x
            assert alone.all_reduce(x, "sum", out) is out
            assert alone.all_gather(x, out=out) is out
        else:
            with pytest.raises(AssertionError, match="not plain"):
                alone.all_reduce(x)
    x, out = np.ones((2, 2)), np.empty((2, 2))
    assert alone.all_reduce(x, op="max", out=out) is out
    assert alone.reduce(x, root=0, op="min") is x
    assert alone.broadcast(x, root=0) is x
    assert alone.gather(x, 0, out) is out
    assert alone.scatter(x, out=out) is out
    assert alone.reduce_scatter(x, "avg", out) is out
    assert alone.all_to_all(x, out.reshape(-1)) is not None
    alone.barrier()
    with pytest.raises(AssertionError, match="not plain"):
        alone.all_gather(x)


def test_methods_look_like_methods(alone: braid.Communicator) -> None:
    for name, parameters in COLLECTIVES.items():
        method = getattr(braid.Communicator, name)
        assert inspect.isroutine(method)
        assert (method.__name__, method.__doc__) == (name, method.__wrapped__.__doc__)
        assert [*inspect.signature(method).parameters][: len(parameters) + 1] == ["self", *parameters]
        assert inspect.signature(getattr(alone, name)).parameters.keys() >= set(parameters)
        assert pickle.loads(pickle.dumps(method)) is method


def test_first_calls_at_the_same_time(tmp_path: Path) -> None:
    # The first call of a process finds out about NumPy; nobody may wait for that with the GIL held.
    script = f"""if True:
        import sys, threading, braid, numpy as np
        comms = [braid.Communicator(f"file://{tmp_path}/{{i}}", rank=0, size=1) for i in range(8)]
        sys.setswitchinterval(1e-9)
        gate = threading.Barrier(8)
        def call(comm):
            gate.wait()
            comm.all_reduce(np.ones(1))
        threads = [threading.Thread(target=call, args=(comm,)) for comm in comms]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """
    for _ in range(3):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=limit(200))


def test_not_a_method() -> None:
    with pytest.raises(ValueError, match="no collective is called"):
        _core.quick(lambda self, x: x)

    def all_reduce(self: object, y: object) -> None: ...

    with pytest.raises(ValueError, match='no collective has a parameter "y"'):
        _core.quick(all_reduce)

    @_core.quick
    def barrier(self: object) -> object:
        return self

    assert barrier(3) == 3
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        barrier()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        type(barrier)()


def test_closed(tmp_path: Path) -> None:
    with braid.Communicator(f"file://{tmp_path}/meet", rank=0, size=1) as comm:
        pass
    for call in (comm.barrier, lambda: comm.all_reduce(np.ones(3))):
        with pytest.raises(braid.CommunicatorError, match="closed"):
            call()
    with pytest.raises(ValueError, match="shape"):
        comm.all_reduce(np.ones(3), out=np.ones(4))
