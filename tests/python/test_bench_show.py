# SPDX-License-Identifier: Apache-2.0
"""What braid bench shows: tables, CSV, pictures, comparisons, explanations and reports in files."""

import copy
import csv
import io
import itertools
import json
import re
import xml.etree.ElementTree
from dataclasses import replace
from importlib.util import find_spec

import pytest
from braid._bench.collectives import COLLECTIVES
from braid._bench.results import Case, Measurement, Ratio, Report, ReportError
from braid._bench.show import csv_form, summary, table, units
from braid._bench.show import plot as picture
from braid._bench.show.columns import Cell, Column, Columns
from braid._bench.show.compare import compare
from braid._bench.show.explain import explain
from braid._bench.show.progress import Progress
from rich.console import Console

pytestmark = pytest.mark.unit
needs_matplotlib = pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")


def measured(p50_us: float, **others: object) -> Measurement:
    rounds_us = [p50_us * (1 + 0.001 * step) for step in range(-10, 11)]
    given = Measurement(p50_us, p50_us * 1.5, p50_us * 0.75, p50_us * 1.1, 2000, rounds_us, 0)
    return replace(given, **others)  # type: ignore[arg-type]


def small_report() -> Report:
    """Three sizes: an ordinary one, one that gloo gets wrong and openmpi refuses, and a noisy one."""
    tiny = Case(8, 2, 1.5)
    tiny.measurements = {
        "braid": measured(8, algorithm="gather_all", predicted_us=7.25),
        "gloo": measured(100),
        "openmpi": measured(6),
    }
    tiny.ratios = {"gloo": Ratio(12.5, 11.9, 13.2), "openmpi": Ratio(0.75, 0.7, 0.8)}
    middle = Case(65536, 16384, 1.5, limit_us=10)
    middle.measurements = {"braid": measured(20, algorithm="halving_doubling"), "gloo": measured(40, wrong=3)}
    middle.ratios = {"gloo": Ratio(2, 1.9, 2.1)}
    middle.refused = {"openmpi": "has no such thing"}
    large = Case(1 << 20, 1 << 18, 1.5, limit_us=150, noise="rounds of gloo differ by 40 %")
    large.measurements = {"braid": measured(200), "gloo": measured(300), "openmpi": measured(250)}
    large.ratios = {"gloo": Ratio(1.5, 1.4, 1.6), "openmpi": Ratio(1.25, 1.2, 1.3)}
    return Report(
        "all_reduce",
        {"ranks": 4, "dtype": "float32", "op": "sum", "api": "torch", "in_place": True, "cold": False},
        ["braid", "gloo", "openmpi"],
        skipped={"mpich": "mpirun is not on PATH"},
        machine={
            "cpu": "Some CPU",
            "cores": 8,
            "usable_cores": 4,
            "cpu_quota": 1.5,
            "memory_total_bytes": 16 << 30,
            "copy_gb_s": 9.87,
            "load_before": [0.5, 0.25, 0.125],
            "versions": {"torch": "2.12.0"},
            "commit": "abc123",
        },
        command=["braid", "bench", "all_reduce"],
        cases=[tiny, middle, large],
        notes=["ranks share cores"],
    )


def lines_of(report: Report, contestant: str) -> list[str]:
    return [line for line in table.text(report).splitlines() if re.search(rf"float32 {contestant}\b", line)]


def words(line: str) -> str:
    return " ".join(line.split())


def test_sizes_and_numbers() -> None:
    sizes = [0, 8, 1000, 1023, 1024, 4096, 1536, 1 << 20, 1048584, 4 * 1048576 // 3, 256 << 20, 3 << 40]
    assert [units.size(size) for size in sizes] == [
        *("0 B", "8 B", "1000 B", "1023 B", "1 KiB", "4 KiB", "1.5 KiB", "1 MiB", "1 MiB", "1.33 MiB"),
        *("256 MiB", "3 TiB"),
    ]
    numbers = [0, 0.01234, 1, 9.9996, 12.345, 999.96, 1234.5, 1234567.0, float("nan")]
    shown = ["0.000", "0.012", "1.000", "10.00", "12.35", "1000", "1234", "1234567", "nan"]
    assert [units.number(value) for value in numbers] == shown


def test_header_says_what_who_and_where() -> None:
    head = [line.plain for line in table.header(small_report())]
    assert head[:5] == [
        "all_reduce, 4 ranks, float32, sum, api torch, in place, hot caches",
        "contestants: braid, gloo, openmpi",
        "skipped mpich: mpirun is not on PATH",
        "machine: Some CPU, 4 of 8 cores, a quota of 1.5 cores, 16.0 GiB, copies 9.9 GB/s, load 0.50 0.25 0.12",
        "software: torch 2.12.0, commit abc123",
    ]
    titles, under = head[-2:]
    assert words(titles) == (
        "size count dtype contestant p50 p95 min algbw busbw #wrong limit % of x braid algorithm predicted"
    )
    assert words(under) == "us us us GB/s GB/s us limit [95 %] us"


def test_header_of_a_machine_of_which_nothing_is_known() -> None:
    report = replace(
        small_report(), machine={}, skipped={}, settings={"ranks": 2, "in_place": False, "cold": True}
    )
    head = [line.plain for line in table.header(report)]
    assert head[0] == "all_reduce, 2 ranks, out of place, cold caches"
    assert not any(line.startswith(("machine", "software", "skipped")) for line in head)


def test_rows() -> None:
    report = small_report()
    braid, gloo = lines_of(report, "braid"), lines_of(report, "gloo")
    assert words(braid[0]) == "8 B 2 float32 braid 8.000 12.00 6.000 0.001 0.002 0 gather_all 7.250"
    assert words(braid[1]) == (
        "64 KiB 16384 float32 braid 20.00 30.00 15.00 3.277 4.915 0 10.00 50% halving_doubling"
    )
    assert gloo[0].endswith("12.5x [11.9, 13.2]")
    assert words(gloo[1]).endswith(" 3 10.00 25% 2.00x [1.90, 2.10]")
    assert lines_of(report, "openmpi")[1].split(maxsplit=5)[-1] == "n/a  has no such thing"
    assert all(re.match(r" *~1 MiB ", lines[2]) for lines in (braid, gloo))
    assert sum("~" in line for line in braid + gloo) == 2


def test_columns_stand_below_their_titles_at_120() -> None:
    report = small_report()
    report.cases[2].bytes, report.cases[2].count = 256 << 20, 64 << 20
    text = table.text(report).splitlines()
    assert max(len(line) for line in text) <= 120
    title = next(line for line in text if line.lstrip().startswith("size"))
    rows = [line for name in report.contestants for line in lines_of(report, name) if "n/a" not in line]
    for name in ("p95", "min", "algbw", "busbw", "#wrong", "limit"):
        end = re.search(rf"{name}\b", title).end()
        cells = [line[end - 1 : end + 1] for line in rows]
        assert all(re.fullmatch(r"\d |  " if name == "limit" else r"\d ", cell) for cell in cells), name
    start = title.index("x braid")
    assert all(re.match(r"\d", line[start:]) for line in rows if line.endswith("]"))


def test_long_texts_use_blanks_and_never_touch() -> None:
    columns = Columns([Column("a", "", 3), Column("b", "", 3, left=True), Column("c", "", 3)])
    lines = [("1", "2", "3"), ("12345", "2", "3"), ("12345", "2345", "3456"), ("", "", "123456")]
    assert [columns.line(map(Cell, line)).plain for line in lines] == [
        *("  1 2     3", "12345 2   3", "12345 2345 3456", "     123456")
    ]


def test_reference_first_and_only_those_that_took_part() -> None:
    report = small_report()
    report.cases[1].refused = {}
    shown = [re.search(r"float32 (\w+)", line.plain)[1] for line in table.rows(report, report.cases[1])]
    assert shown == ["braid", "gloo"]


def styles(report: Report, case: Case, text: str) -> set[str]:
    found = set()
    for line in table.rows(report, case):
        found |= {str(span.style) for span in line.spans if line.plain[span.start : span.end] == text}
    return found


def test_colours() -> None:
    report = small_report()
    assert styles(report, report.cases[0], "6.000") == {"bold"}, "the best median"
    assert styles(report, report.cases[0], "100.0") == set()
    assert styles(report, report.cases[1], "3") == {"bold red"}
    assert styles(report, report.cases[2], "300.0") == {"yellow"}
    report.cases[0].measurements["openmpi"] = measured(6, wrong=1)
    assert styles(report, report.cases[0], "6.000") == set(), "a wrong result is not the best one"
    assert styles(report, report.cases[0], "8.000") == {"bold"}


def test_footer() -> None:
    report = small_report()
    assert [line.plain for line in table.footer(report)] == [
        "",
        "note: ranks share cores",
        "WRONG: gloo at 64 KiB: 3 elements of the results",
        "~ 1 of 3 sizes are noisy: look at the intervals.",
        "  1 MiB: rounds of gloo differ by 40 %",
        "  Run them again on an idle machine, or for longer with --time.",
    ]
    quiet = replace(report, cases=report.cases[:1], notes=[])
    assert table.footer(quiet) == []


def test_a_barrier_has_no_rates() -> None:
    case = Case(
        0, 0, 0, measurements={"braid": measured(5), "gloo": measured(10)}, ratios={"gloo": Ratio(2, 1, 3)}
    )
    report = replace(small_report(), collective="barrier", settings={"ranks": 4}, cases=[case])
    assert [words(line.plain) for line in table.rows(report, case)] == [
        "0 B 0 braid 5.000 7.500 3.750 0",
        "0 B 0 gloo 10.00 15.00 7.500 0 2.00x [1.00, 3.00]",
    ]


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_progress(file: io.StringIO, monkeypatch: pytest.MonkeyPatch, **options: object) -> str:
    monkeypatch.setenv("TERM", "xterm")
    report = small_report()
    clock = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    with Progress(Console(file=file, width=60, **options)) as progress:  # type: ignore[arg-type]
        progress.at("gloo", 4096, 3, 20)
        progress.show(table.rows(report, report.cases[1]))
    return file.getvalue()


def test_progress_in_a_pipe_is_finished_lines_alone(monkeypatch) -> None:
    report = small_report()
    plain = "".join(f"{line.plain}\n" for line in table.rows(report, report.cases[1]))
    assert run_progress(io.StringIO(), monkeypatch) == plain
    coloured = run_progress(io.StringIO(), monkeypatch, force_terminal=True)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain != coloured, "colours may be forced, a status line not"


def test_progress_on_a_terminal(monkeypatch) -> None:
    shown = run_progress(FakeTerminal(), monkeypatch)
    assert "gloo, 4 KiB, round 3 of 20, 0:01 elapsed" in shown
    assert "halving_doubling" in shown
    assert shown.endswith("\x1b[2K"), "the status line is wiped away"


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_explain(collective: str) -> None:
    text = explain(collective, 4)
    claims = words(text)
    assert max(map(len, text.splitlines())) <= 100
    for claim in ("the last rank enters it", "the last rank returns", "95 % interval", "#wrong", "algorithm"):
        assert claim in claims
    formula = {"all_reduce": "2(n-1)/n = algbw x 1.50.", "barrier": ""}.get(collective, "(n-1)/n = algbw x 0.75.")
    if collective in {"broadcast", "reduce", "send_recv", "ping_pong"}:
        formula = "1."
    assert (f"algbw x {formula} What" in claims) == bool(formula)
    assert ("a barrier, which is not timed" in claims) == (
        collective in {"broadcast", "reduce", "gather", "scatter"}
    )
    blocks = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}
    assert ("rounded up to a multiple of n x bytes of an element" in claims) == (collective in blocks)
    assert ("half of that for the round trip between ranks 0 and 1" in claims) == (collective == "ping_pong")


def test_csv_round_trip() -> None:
    report = small_report()
    file = io.StringIO(newline="")
    report.cases[1].refused["openmpi"] = 'says "no", and\nmore'
    csv_form.write(report, file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue(), newline="")))
    assert (
        file.getvalue()
        .splitlines()[0]
        .startswith("collective,ranks,dtype,op,api,in_place,cold,layout,bytes,count,")
    )
    assert [(row["bytes"], row["contestant"]) for row in rows] == [
        (str(case.bytes), name) for case in report.cases for name in report.contestants
    ]
    gloo = rows[4]
    found = report.cases[1].measurements["gloo"]
    expected = {
        **{"p50_us": found.p50_us, "p95_us": found.p95_us, "min_us": found.min_us, "mean_us": found.mean_us},
        **{"calls": 2000, "rounds": 21, "wrong": 3, "algbw_gb_s": 65536 / 40e3, "busbw_gb_s": 1.5 * 65536 / 40e3},
        **{"ratio": 2, "ratio_low": 1.9, "ratio_high": 2.1, "limit_us": 10, "percent_of_limit": 25, "ranks": 4},
    }
    assert {name: float(gloo[name]) for name in expected} == pytest.approx(expected)
    assert (gloo["dtype"], gloo["in_place"], gloo["predicted_us"], gloo["refused"]) == ("float32", "True", "", "")
    assert rows[5]["refused"] == 'says "no", and\nmore'
    assert rows[5]["p50_us"] == ""
    assert rows[0]["limit_us"] == rows[0]["percent_of_limit"] == rows[0]["ratio"] == ""
    assert rows[6]["noise"] == "rounds of gloo differ by 40 %"


@needs_matplotlib
def test_plot_makes_pictures(tmp_path) -> None:
    for suffix in picture.SUFFIXES:
        picture.plot(small_report(), tmp_path / f"picture{suffix}")
    import matplotlib.image

    pixels = matplotlib.image.imread(tmp_path / "picture.png")
    assert pixels.shape[0] > 500
    assert pixels.shape[1] > 1000
    assert pixels.std() > 0.05, "an empty picture"
    assert (tmp_path / "picture.pdf").read_bytes().startswith(b"%PDF")
    xml.etree.ElementTree.parse(tmp_path / "picture.svg")


@needs_matplotlib
def test_plot_says_what_is_drawn(tmp_path, monkeypatch) -> None:
    import matplotlib

    monkeypatch.setitem(matplotlib.rcParamsDefault, "svg.fonttype", "none")  # words as words, not as outlines
    report = small_report()
    picture.plot(report, tmp_path / "picture.svg")
    drawn = xml.etree.ElementTree.parse(tmp_path / "picture.svg").iter("{http://www.w3.org/2000/svg}text")
    written = [text.text for text in drawn]
    assert "all_reduce, 4 ranks, float32, sum" in written
    assert "Some CPU, api torch, in place, hot caches" in written
    machine = "4 of 8 cores, a quota of 1.5 cores, 16.0 GiB, copies 9.9 GB/s, load 0.50 0.25 0.12"
    assert f"{machine}, torch 2.12.0, commit abc123" in written
    assert {"braid", "gloo", "openmpi", "limit of the memory", "noisy", "wrong results"} <= set(written)
    assert {"16 B", "64 KiB", "1 MiB", "10 µs", "100 µs"} <= set(written)
    assert "mpich" not in written


@needs_matplotlib
def test_plot_draws_every_value(tmp_path, monkeypatch) -> None:
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: figures.append(self))
    picture.plot(small_report(), tmp_path / "picture.png")
    latency, bandwidth = ({line.get_label(): line for line in axes.lines} for axes in figures[0].axes)
    assert list(latency["gloo"].get_xdata()) == [8, 65536, 1 << 20]
    assert list(latency["gloo"].get_ydata()) == [100, 40, 300]
    assert list(latency["openmpi"].get_ydata()) == pytest.approx([6, float("nan"), 250], nan_ok=True)
    assert list(bandwidth["gloo"].get_ydata()) == pytest.approx([1.2e-4, 2.4576, 5.24288])
    limit = "limit of the memory"
    assert list(zip(*latency[limit].get_data(), strict=True)) == [(65536, 10), (1 << 20, 150)]
    assert list(bandwidth[limit].get_ydata()) == pytest.approx([9.8304, 10.48576])
    drawn = [latency[name] for name in small_report().contestants]
    assert len({line.get_color() for line in drawn}) == len({line.get_marker() for line in drawn}) == 3


@needs_matplotlib
@pytest.mark.parametrize("sizes", [[8], [12, 13], [9], [48, 3 << 30]])
def test_plot_of_odd_sizes(tmp_path, sizes, recwarn) -> None:
    cases = [Case(size, 1, 0, measurements={"braid": measured(5)}) for size in sizes]
    picture.plot(replace(small_report(), cases=cases), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    assert not recwarn.list


@needs_matplotlib
def test_plot_of_nothing(tmp_path) -> None:
    with pytest.raises(picture.PlotError, match="nothing to draw"):
        picture.plot(replace(small_report(), cases=[]), tmp_path / "picture.png")


def test_plot_refuses_what_it_cannot_write(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(picture.importlib.util, "find_spec", lambda name: object())
    picture.check_path(tmp_path / "picture.PNG")
    for name in ("picture.jpg", "picture", "png"):
        with pytest.raises(picture.PlotError, match=r"\.png, \.svg, \.pdf"):
            picture.check_path(tmp_path / name)
    with pytest.raises(picture.PlotError, match="no folder"):
        picture.check_path(tmp_path / "missing" / "picture.png")


def test_plot_without_matplotlib(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(picture.importlib.util, "find_spec", lambda name: None)
    for refused in (
        lambda: picture.check_path(tmp_path / "picture.png"),
        lambda: picture.plot(small_report(), tmp_path / "picture.png"),
    ):
        with pytest.raises(picture.PlotError) as caught:
            refused()
        assert str(caught.value) == "--plot needs matplotlib: pip install '.[bench]' in a clone of braid"
    assert list(tmp_path.iterdir()) == []


def row_of(lines: list[str], size: str, contestant: str) -> str:
    (row,) = [line for line in lines if re.match(rf"\s*~?{size} {contestant}\b", line)]
    return row


def test_compare_identical() -> None:
    lines = compare(small_report(), small_report())
    assert not any("warning" in line or "only in" in line for line in lines)
    assert row_of(lines, "8 B", "braid").split()[2:] == ["braid", "8.000", "8.000", "+0.0%", "same"]
    assert row_of(lines, "8 B", "gloo").endswith("  +0.0% same    12.5x [11.9, 13.2] 12.5x [11.9, 13.2] same")
    assert "braid by time alone: 0 faster, 0 slower, 3 same" in lines
    assert "braid against gloo: 0 faster, 0 slower, 3 same" in lines
    assert "wrong results in the new report: 64 KiB gloo" in lines


def test_compare_changed() -> None:
    old, new = small_report(), small_report()
    new.cases[0].measurements["braid"] = measured(4)
    new.cases[0].ratios["gloo"] = Ratio(25, 24, 26)
    new.cases[1].measurements["braid"] = measured(30)
    new.cases[1].ratios["gloo"] = Ratio(1.4, 1.3, 1.5)
    new.cases[2].measurements["braid"] = measured(200.5)
    new.cases[0].ratios["openmpi"] = Ratio(0.72, 0.65, 0.75)
    new.cases[2].ratios["openmpi"] = Ratio(1.27, 1.25, 1.35)
    lines = compare(old, new)
    assert row_of(lines, "8 B", "braid").split()[3:] == ["8.000", "4.000", "-50.0%", "faster"]
    assert row_of(lines, "8 B", "gloo").endswith("12.5x [11.9, 13.2] 25.0x [24.0, 26.0] faster")
    assert row_of(lines, "64 KiB", "braid").split()[3:] == ["20.00", "30.00", "+50.0%", "slower"]
    assert row_of(lines, "64 KiB", "gloo").split()[-1] == "slower"
    assert row_of(lines, "1 MiB", "braid").split()[-1] == "same", "within the rounds of both"
    assert "braid by time alone: 1 faster, 1 slower, 1 same" in lines
    assert "braid against gloo: 1 faster, 1 slower, 1 same" in lines
    assert "braid against openmpi: 0 faster, 0 slower, 2 same" in lines, "intervals that overlap in part"


def test_compare_what_only_one_has() -> None:
    old, new = small_report(), small_report()
    del old.cases[2]
    new.contestants = ["braid", "gloo"]
    del new.cases[0].measurements["openmpi"]
    lines = compare(old, new)
    assert "only in the old report: 8 B openmpi" in lines
    assert "only in the new report: 1 MiB braid, 1 MiB gloo, 1 MiB openmpi" in lines


def test_compare_warns_of_other_circumstances() -> None:
    old, new = small_report(), small_report()
    new.settings["api"] = "numpy"
    new.machine |= {"cpu": "Other CPU", "versions": {"torch": "2.13.0", "mpi4py": "4.1"}, "copy_gb_s": 1.0}
    assert [line for line in compare(old, new) if line.startswith("warning")] == [
        "warning: api: old torch, new numpy",
        "warning: cpu: old Some CPU, new Other CPU",
        "warning: version of torch: old 2.12.0, new 2.13.0",
        "warning: version of mpi4py: old not set, new 4.1",
    ]


@pytest.mark.parametrize(("name", "value"), [("ranks", 8), ("dtype", "float64"), ("op", None)])
def test_compare_refuses_other_subjects(name: str, value: object) -> None:
    new = small_report()
    new.settings[name] = value
    with pytest.raises(ReportError, match=f"not comparable: {name} is {small_report().settings[name]} in the old"):
        compare(small_report(), new)
    with pytest.raises(ReportError, match="collective is all_reduce in the old report, reduce in the new"):
        compare(small_report(), replace(small_report(), collective="reduce"))


def test_compare_refuses_reports_with_nothing_in_common() -> None:
    new = small_report()
    for case in new.cases:
        case.bytes += 4
    with pytest.raises(ReportError, match="in common"):
        compare(small_report(), new)


def test_report_round_trip(tmp_path) -> None:
    path = tmp_path / "report.json"
    report = small_report()
    report.write(path)
    assert Report.read(path) == report
    assert summary.subject(Report.read(path)) == summary.subject(report)


def test_report_that_cannot_be_read(tmp_path) -> None:
    path = tmp_path / "report.json"
    with pytest.raises(ReportError, match="No such file"):
        Report.read(path)
    report = small_report()
    report.write(path)
    good = json.loads(path.read_text())
    later, unknown, less = (copy.deepcopy(good) for _ in range(3))
    later["schema"] = 999
    unknown["cases"][0]["colour"] = "blue"
    del less["cases"][0]["measurements"]["braid"]["p50_us"]
    path.write_text(json.dumps(later))
    with pytest.raises(ReportError, match="another version"):
        Report.read(path)
    for bad in ("{", "[]", "3", "{}", json.dumps(unknown), json.dumps(less)):
        path.write_text(bad)
        with pytest.raises(ReportError, match="not a report of braid bench"):
            Report.read(path)
