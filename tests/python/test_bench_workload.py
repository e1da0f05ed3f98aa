# SPDX-License-Identifier: Apache-2.0
"""What a benchmark measures and with which data: sizes, operators, and patterns whose results are known."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from braid._bench.collectives import COLLECTIVES
from braid._bench.ranks import pattern
from braid._bench.ranks.contestants import (
    Setting,
    UnavailableError,
    check_algorithm,
    parse_against,
    parse_layout,
    recipe_for,
)
from braid._bench.ranks.mpi_rank import version_number
from braid._bench.ranks.pattern import PERIOD, Pattern, Region, count_wrong, fill, poison
from braid._bench.rounds import apart, call_times
from braid._bench.workload import (
    UsageError,
    Workload,
    check_dtype,
    check_op,
    itemsize,
    parse_sizes,
    workload,
)

pytestmark = pytest.mark.unit


def as_float32(values):
    return values.astype(np.float32).view(np.uint32)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", [8]),
        ("8:64", [8, 16, 32, 64]),
        ("8:100", [8, 16, 32, 64, 100]),
        ("1k:64K:4", [1024, 4096, 16384, 65536]),
        ("1M,3000,1M", [1 << 20, 3000]),
        ("8,16:64,2MiB, 1 GB", [8, 16, 32, 64, 2 << 20, 1 << 30]),
        ("0", [0]),
        ("5:5", [5]),
    ],
)
def test_sizes(text, expected) -> None:
    assert parse_sizes(text) == expected


@pytest.mark.parametrize("text", ["", "x", "8:", "64:8", "8:64:1", "8:64:x", "1:2:3:4", "-8", "8,,16", "1.5M"])
def test_senseless_sizes_are_refused(text) -> None:
    with pytest.raises(UsageError, match="--sizes"):
        parse_sizes(text)


def test_a_size_is_rounded_up_to_elements_and_blocks() -> None:
    assert workload("all_reduce", "float32", "sum", 9, 3, None, False).count == 3
    assert workload("all_gather", "float32", "sum", 9, 3, None, False).count == 3
    assert workload("all_gather", "float32", "sum", 8, 3, None, False).bytes == 12
    assert workload("scatter", "int8", "sum", 0, 3, None, False).count == 0
    assert workload("barrier", "float32", "sum", 1 << 20, 3, None, False).bytes == 0


def test_placement() -> None:
    assert workload("all_reduce", "float32", "sum", 8, 2, None, False).in_place
    assert not workload("all_reduce", "float32", "sum", 8, 2, False, False).in_place
    assert workload("all_gather", "float32", "sum", 8, 2, True, False).in_place
    with pytest.raises(UsageError, match="all_to_all is measured out of place only"):
        workload("all_to_all", "float32", "sum", 8, 2, True, False)
    with pytest.raises(UsageError, match="broadcast is measured in place only"):
        workload("broadcast", "float32", "sum", 8, 2, False, False)


def test_an_operator_counts_only_where_something_is_combined() -> None:
    assert workload("all_gather", "float32", "max", 8, 2, None, False).op == ""
    assert check_op("float32", "PROD") == "product"
    for dtype, op in [("float32", "bxor"), ("complex64", "max"), ("float32", "median")]:
        with pytest.raises(UsageError, match="--op"):
            check_op(dtype, op)


def test_dtypes() -> None:
    assert check_dtype("bf16") == "bfloat16"
    assert [itemsize(name) for name in ("bool", "float8_e5m2", "bfloat16", "int8", "uint64", "complex128")] == [
        *(1, 1, 2, 1, 8, 16)
    ]
    with pytest.raises(UsageError, match=r"float33.*float32"):
        check_dtype("float33")


def test_bus_bandwidth_factors() -> None:
    factors = {name: kind.bus_factor(4) for name, kind in COLLECTIVES.items()}
    assert factors["all_reduce"] == 1.5
    assert factors["all_gather"] == factors["reduce_scatter"] == factors["all_to_all"] == 0.75
    assert factors["broadcast"] == factors["ping_pong"] == 1


# ---- who takes part


def test_contestants(tmp_path) -> None:
    (tmp_path / "bin").mkdir()
    assert parse_against(f"gloo,openmpi={tmp_path},GLOO,braid") == {"gloo": None, "openmpi": tmp_path}
    assert parse_against("none") == parse_against("") == {}
    for text in ("glo", f"gloo={tmp_path}", "mpich=/nowhere"):
        with pytest.raises(UsageError, match="--against"):
            parse_against(text)


def test_an_mpi_that_is_not_there_is_unavailable(tmp_path, monkeypatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnavailableError, match="mpi4py is not installed"):
        recipe_for("openmpi", tmp_path, Setting(2))
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(UnavailableError, match="no mpirun of it in"):
        recipe_for("openmpi", tmp_path, Setting(2))
    launcher = tmp_path / "bin" / "mpirun"
    launcher.write_text("#!/bin/sh\necho 'HYDRA build details'\n")
    launcher.chmod(0o755)
    with pytest.raises(UnavailableError, match="is another MPI"):
        recipe_for("openmpi", tmp_path, Setting(2))
    assert recipe_for("mpich", tmp_path, Setting(2)).launcher[0] == str(launcher)
    with pytest.raises(UnavailableError, match="--layout"):
        recipe_for("mpich", tmp_path, Setting(2, hosts=(1, 1)))


@pytest.fixture
def intelmpi(tmp_path, monkeypatch) -> Path:
    """A folder with what looks like Intel MPI, and an environment that sets nothing of it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    for variable in ("I_MPI_FABRICS", "I_MPI_SHM_HEAP", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(variable, raising=False)
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libmpi.so.12").touch()
    for program in ("mpirun", "mpiexec", "mpiexec.hydra"):
        launcher = tmp_path / "bin" / program
        launcher.write_text("#!/bin/sh\necho 'Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 1'\n")
        launcher.chmod(0o755)
    return tmp_path


def test_how_intel_mpi_is_started(intelmpi) -> None:
    assert parse_against(f"intelmpi={intelmpi}") == {"intelmpi": intelmpi}
    recipe = recipe_for("intelmpi", intelmpi, Setting(64))
    assert recipe.launcher == (str(intelmpi / "bin" / "mpiexec.hydra"),)
    assert recipe.environment == {
        "LD_LIBRARY_PATH": str(intelmpi / "lib"),
        "MPI4PY_MPIABI": "mpich",
        "MPI4PY_LIBMPI": str(intelmpi / "lib" / "libmpi.so.12"),
        "I_MPI_FABRICS": "shm",
        "I_MPI_SHM_HEAP": "1",
    }
    for other in ("openmpi", "mpich"):
        with pytest.raises(UnavailableError, match=r"no mpirun of it in .*; .*bin/mpirun is another MPI"):
            recipe_for(other, intelmpi, Setting(2))


def test_settings_of_intel_mpi_are_the_users_first(intelmpi, monkeypatch) -> None:
    monkeypatch.setenv("I_MPI_FABRICS", "shm:ofi")
    monkeypatch.setenv("I_MPI_SHM_HEAP", "0")
    environment = recipe_for("intelmpi", intelmpi, Setting(2)).environment
    assert not {name for name in environment if name.startswith("I_MPI_")}


def test_intel_mpi_that_is_not_there_is_unavailable(intelmpi, monkeypatch) -> None:
    launcher = intelmpi / "bin" / "mpiexec.hydra"
    launcher.write_text("#!/bin/sh\necho 'HYDRA build details'\n")
    with pytest.raises(UnavailableError, match=r"no mpiexec\.hydra of it in .*hydra is another MPI"):
        recipe_for("intelmpi", intelmpi, Setting(2))
    monkeypatch.setattr("sys.prefix", str(intelmpi / "lib"))
    monkeypatch.setenv("PATH", str(intelmpi / "lib"))
    with pytest.raises(UnavailableError, match=r"--against intelmpi=FOLDER, .*pip install impi-rt"):
        recipe_for("intelmpi", None, Setting(2))


def test_version_numbers_of_mpis() -> None:
    assert version_number("Open MPI v5.0.11") == "5.0.11"
    assert version_number("MPICH Version:      5.0.2") == "5.0.2"
    assert version_number("Intel(R) MPI Library 2021.18.1 for Linux* OS") == "2021.18.1"
    assert version_number("An MPI") == "An MPI"


def test_layouts() -> None:
    assert parse_layout("", 4) == ()
    assert parse_layout("3,1", 4) == (3, 1)
    assert parse_layout("2x2", 4) == (2, 2)
    for text in ("2,1", "4,0", "2x", "a", "3x2", "-1,5"):
        with pytest.raises(UsageError, match="--layout"):
            parse_layout(text, 4)


def test_algorithms() -> None:
    assert check_algorithm("ring", "all_reduce") == "ring"
    assert check_algorithm("", "ping_pong") == ""
    with pytest.raises(UsageError, match="all_gather has ring"):
        check_algorithm("doubling_down", "all_gather")
    with pytest.raises(UsageError, match="no collective"):
        check_algorithm("ring", "send_recv")


# ---- data


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("dtype", ["float8_e5m2", "bfloat16", "float32", "int8", "uint8", "bool"])
@pytest.mark.parametrize("op", ["sum", "avg", "product", "min", "max"])
def test_results_need_no_rounding(dtype, op, ranks) -> None:
    data = Pattern(Workload("all_reduce", dtype, op, 1000, True), ranks, seed=3)
    inputs = [data.inputs(rank)[0].values for rank in range(ranks)]
    result = data.outputs(0)[0].values
    exact = {"float8_e5m2": 8, "bfloat16": 256, "float32": 2**24, "int8": 127, "uint8": 255, "bool": 1}[dtype]
    combine = {"sum": sum, "avg": sum, "product": np.prod, "min": np.min, "max": np.max}[op]
    expected = combine(np.array(inputs)) if op in ("sum", "avg") else combine(np.array(inputs), axis=0)
    if dtype != "bool":
        assert abs(expected).max() <= exact
        assert (result * ranks == expected).all() if op == "avg" else (result == expected).all()
    assert max(abs(values).max() for values in inputs) <= exact
    if dtype in ("uint8", "bool"):
        assert min(values.min() for values in inputs) >= 0
    assert len({values.tobytes() for values in inputs}) > 1 or ranks == 1 or op in ("avg", "product")


def test_another_seed_gives_other_data() -> None:
    work = Workload("all_reduce", "float32", "sum", 1000, True)
    first, second = (Pattern(work, 2, seed).inputs(0)[0].values for seed in (1, 2))
    assert (first != second).any()


@pytest.mark.parametrize("collective", [name for name in COLLECTIVES if name not in ("barrier", "ping_pong")])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("blocks", [1, 5, PERIOD + 7])
def test_outputs_follow_from_inputs(collective, ranks, blocks) -> None:
    """A collective worked out by NumPy on whole buffers gives what the regions say."""
    work = Workload(collective, "float32", "sum" if COLLECTIVES[collective].reduces else "", blocks * ranks, False)
    data = Pattern(work, ranks, seed=5)
    inputs = []
    for rank in range(ranks):
        regions = data.inputs(rank)
        bits = np.zeros(sum(region.length for region in regions), np.uint32)
        fill(bits, regions, as_float32)
        inputs.append(bits.view(np.float32))
    outputs = _by_numpy(collective, inputs, ranks)
    for rank, output in enumerate(outputs):
        regions = data.outputs(rank)
        assert count_wrong(output.astype(np.float32).view(np.uint32), regions, as_float32) == 0
        assert sum(region.length for region in regions) == output.size
    damaged = outputs[0].astype(np.float32)
    damaged[-1] += 1
    assert count_wrong(damaged.view(np.uint32), data.outputs(0), as_float32) == 1


def _by_numpy(collective, inputs, ranks):
    nothing = np.empty(0)
    total = np.sum([part for part in inputs if part.size], axis=0) if COLLECTIVES[collective].reduces else nothing
    joined = np.concatenate(inputs)
    match collective:
        case "all_reduce":
            return [total] * ranks
        case "reduce":
            return [total] + [nothing] * (ranks - 1)
        case "reduce_scatter":
            return np.split(total, ranks)
        case "all_gather":
            return [joined] * ranks
        case "gather":
            return [joined] + [nothing] * (ranks - 1)
        case "scatter":
            return np.split(inputs[0], ranks)
        case "broadcast":
            return [inputs[0]] * ranks
        case "all_to_all":
            blocks = [np.split(part, ranks) for part in inputs]
            return [np.concatenate([blocks[source][rank] for source in range(ranks)]) for rank in range(ranks)]
        case "send_recv":
            return [inputs[(rank - 1) % ranks] for rank in range(ranks)]
    raise AssertionError(collective)


def test_poison_is_no_result() -> None:
    for dtype, op, ranks in itertools.product(["int8", "uint8", "float32"], ["sum", "product", "bor"], [1, 2, 8]):
        values = Pattern(Workload("all_reduce", dtype, op, 5000, True), ranks, seed=0).outputs(0)[0].values
        encoded = values.astype(dtype)
        bits = encoded.view(f"u{encoded.itemsize}")
        poisoned = np.empty_like(bits)
        poison(poisoned)
        assert (bits != poisoned).all(), (dtype, op, ranks)


def test_tolerance_counts_units_in_the_last_place() -> None:
    one = np.ones(1, np.float32)
    regions = [Region(0, 3, np.array([1, 1, 1]))]
    near = np.array([1, np.nextafter(one, 2)[0], np.nextafter(np.nextafter(one, 2), 2)[0]], np.float32)
    assert count_wrong(near.view(np.uint32), regions, as_float32) == 2
    assert count_wrong(near.view(np.uint32), regions, as_float32, tolerance=1) == 1


def test_complex_elements_are_two_numbers() -> None:
    def encode(values):
        return values.astype(np.complex64).view(np.uint32)

    bits = np.zeros(20, np.uint32)
    fill(bits, [Region(2, 8, np.arange(3), phase=1)], encode)
    assert bits.view(np.complex64).tolist() == [0, 0, 1, 2, 0, 1, 2, 0, 1, 2]


def test_the_period_is_prime() -> None:
    assert all(pattern.PERIOD % divisor for divisor in range(2, int(pattern.PERIOD**0.5) + 1))


# ---- time


def test_a_call_lasts_from_the_last_entry_to_the_last_return() -> None:
    first = (np.array([1000, 9000]), np.array([5000, 10000]))
    second = (np.array([2000, 7000]), np.array([4000, 12000]))
    bystander = (np.empty(0, np.int64), np.empty(0, np.int64))
    assert call_times([first, second, bystander]).tolist() == [3.0, 3.0]


def test_calls_that_began_before_all_had_ended_the_last_one_are_left_out() -> None:
    first = (np.array([0, 10, 20, 31]), np.array([4, 14, 30, 33]))
    second = (np.array([0, 10, 21, 32]), np.array([5, 12, 22, 34]))
    early = (np.array([0, 10, 13, 32]), np.array([5, 12, 14, 34]))
    assert [(a.tolist(), b.tolist()) for a, b in apart([first, second])] == [
        ([0, 10, 20, 31], [4, 14, 30, 33]),
        ([0, 10, 21, 32], [5, 12, 22, 34]),
    ]
    assert [a.tolist() for a, _ in apart([first, early])] == [[0, 10, 31], [0, 10, 32]]
    assert [a.tolist() for a, _ in apart([(np.array([3, 2]), np.array([9, 8]))])] == [[3]]


def test_times_of_calls_in_a_row_add_up() -> None:
    stamps = [np.array([0, 30, 50, 90]) * 1000, np.array([10, 20, 60, 80]) * 1000]
    times = call_times([(rank[:-1], rank[1:]) for rank in stamps])
    assert times.sum() == 90 - 10
