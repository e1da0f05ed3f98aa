# SPDX-License-Identifier: Apache-2.0
"""``braid explain`` on clusters that are not there: what it asks the core, and what it refuses."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from braid import _core
from braid._bench.ddp.buckets import Gradient, buckets_of, gradients_of
from braid._bench.ddp.models import model
from braid.cli import main
from braid.cli.explain import seconds_text, shares_text

pytestmark = pytest.mark.unit

LINKS = """
[[host]]
name = "a"
[[host]]
name = "slow"
rate = "100mbit"
[[host]]
name = "b"
"""
MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(1000, 10, sparse=True)
        self.body = torch.nn.Sequential(*(torch.nn.Linear(500, 500) for _ in range(40)))
        self.half = torch.nn.Linear(10, 10).half()
        self.fixed = torch.nn.Linear(10, 10).requires_grad_(False)

def broken():
    raise KeyError("it")

number = 7
odd = lambda: 7
"""


@pytest.fixture
def links(tmp_path: Path) -> Path:
    path = tmp_path / "net.toml"
    path.write_text(LINKS)
    return path


def document(tmp_path: Path, *arguments: object) -> dict[str, Any]:
    path = tmp_path / "explained.json"
    assert main(["explain", *map(str, arguments), "--json", str(path)]) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_sizes_on_a_file_of_links(links: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(tmp_path, "--links", links, "--sizes", "64,16M", "--ranks-per-host", "2,1,1")
    assert found["topology"].startswith("topology hosts=0,0,1,2\n")
    tuner = _core.Tuner(found["topology"])
    for size, row in zip((64, 16 << 20), found["operations"], strict=True):
        assert row == {"bytes": size, "dtype": "float32", **tuner.explain("all_reduce", "float32", "sum", 0, size)}
    small, large = found["operations"]
    assert found["predicted_s"] == small["predicted_s"] + large["predicted_s"]
    assert large["segments"] > 1
    out = capsys.readouterr().out
    assert "all_reduce, 4 ranks on 3 hosts" in out
    for row in (small, large):
        assert f" {row['algorithm']} " in out
        assert f" {seconds_text(row['predicted_s'])} " in out
        for one in row["runners_up"][:3]:
            assert re.search(rf"\n +{one['algorithm']} +{re.escape(seconds_text(one['predicted_s']))} *\n", out)


def test_a_list_of_sizes_is_explained_as_one_vector_too(
    links: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(tmp_path, "--links", links, "--sizes", "64,64K,3M")
    size = 64 + (64 << 10) + (3 << 20)
    assert found["as_one"] == _core.Tuner(found["topology"]).explain("all_reduce", "float32", "sum", 0, size)
    assert found["as_one"]["predicted_s"] < found["predicted_s"]
    out = " ".join(capsys.readouterr().out.split())
    assert f"as one vector of 3.06 MiB: {seconds_text(found['as_one']['predicted_s'])} by direct, shares" in out
    assert "as_one" not in document(tmp_path, "--links", links, "--sizes", "64")
    assert "as_one" not in document(tmp_path, "broadcast", "--links", links, "--sizes", "64,64K")


TWO = """
[[host]]
name = "a"
rate = "200mbit"
[[host]]
name = "b"
rate = "50mbit"
"""


def test_it_says_why_and_what_would_gain(links: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--links", str(links), "--sizes", "64,16M"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for column in ("algorithm: ", "segments: ", "chunk: ", "shares: "):
        assert sum(line.startswith(column) for line in lines) == 1, column
    (why,) = [line for line in lines if line.startswith("why ")]
    assert "for 16 MiB: the next, " in why
    assert "slow cards sum smaller shares" in why
    (gain,) = [line for line in lines if line.startswith("gain for 16 MiB: ")]
    assert float(gain.split()[4]) > 1.05
    assert any(line.startswith("with compression by int8: ") for line in lines)


def test_of_two_hosts_it_says_that_exact_sums_gain_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.toml"
    path.write_text(TWO)
    assert main(["explain", "--links", str(path), "--sizes", "16M"]) == 0
    out = capsys.readouterr().out
    assert "no gain for 16 MiB with exact sums: of two hosts each must send the whole vector to the other" in out
    assert "with compression by int8: " in out
    assert main(["explain", "--links", str(path), "--sizes", "16M", "--dtype", "int32"]) == 0
    assert "with compression" not in capsys.readouterr().out, "integers stay exact"
    assert main(["explain", "--links", str(path), "--sizes", "16M", "--algorithm", "ring"]) == 0
    assert "why ring for 16 MiB: no other algorithm is allowed or possible" in capsys.readouterr().out


def test_on_one_host_there_is_nothing_to_compress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.toml"
    path.write_text('[[host]]\nname = "a"')
    assert main(["explain", "--links", str(path), "--sizes", "1M", "--ranks-per-host", "2"]) == 0
    assert "there is nothing to compress" in capsys.readouterr().out


def test_what_is_asked_is_what_is_answered(links: Path, tmp_path: Path) -> None:
    def first(*arguments: object) -> dict[str, Any]:
        row: dict[str, Any] = document(tmp_path, *arguments, "--links", links, "--sizes", "16M")["operations"][0]
        return row

    assert first("all_reduce")["shares"][1] < first("all_reduce")["shares"][0]
    assert first("broadcast", "--root", 2)["collective"] == "broadcast"
    forced = first("all_reduce", "--algorithm", "ring")
    assert (forced["algorithm"], forced["runners_up"]) == ("ring", [])
    assert "is rounded once" in first("all_reduce", "--dtype", "bf16")["reason"]
    assert "is rounded once" not in first("all_reduce", "--dtype", "bf16", "--op", "max")["reason"]
    coded = first("all_reduce", "--codec", "int8")
    assert coded["predicted_s"] < first("all_reduce")["predicted_s"] / 2
    more = document(tmp_path, "--links", links, "--sizes", "1M", "--hosts", 5)
    assert more["topology"].startswith("topology hosts=0,1,2,3,4\n")
    (barrier,) = document(tmp_path, "barrier", "--links", links)["operations"]
    assert barrier["bytes"] == 0


def test_one_host_shares_memory(tmp_path: Path) -> None:
    path = tmp_path / "net.toml"
    path.write_text('[[host]]\nname = "a"')
    found = document(tmp_path, "--links", path, "--sizes", "64M", "--ranks-per-host", 4)
    assert found["operations"][0]["chunk_bytes"] == 0  # boards cut by themselves
    assert found["operations"][0]["predicted_s"] < 1


def test_a_model_is_explained_by_its_buckets(
    links: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(tmp_path, "--links", links, "--model", "resnet50")
    rows = found["operations"]
    assert sum(row["bytes"] for row in rows) == model("resnet50").elements * 4
    assert rows[0]["gradients"] == ["fc.bias", "fc.weight"]  # a backward begins at the end
    assert found["predicted_s"] == pytest.approx(sum(row["predicted_s"] for row in rows))
    out = capsys.readouterr().out
    assert f"{len(rows)} buckets, 97.5 MiB: {seconds_text(found['predicted_s'])} one after the other" in out
    halved = document(tmp_path, "--links", links, "--model", "resnet50", "--dtype", "float16")["operations"]
    assert sum(row["bytes"] for row in halved) == model("resnet50").elements * 2
    finer = document(tmp_path, "--links", links, "--model", "resnet50", "--bucket-cap-mb", 1)["operations"]
    assert len(finer) > 2 * len(rows)


def test_a_model_of_ones_own(links: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    rows = document(tmp_path, "--links", links, "--model", f"{path}:Net")["operations"]
    assert "left out: 1 tables, whose gradients are sparse" in capsys.readouterr().err
    names = [name for row in rows for name in row["gradients"]]
    assert sorted(names) == sorted(
        [
            *(f"body.{layer}.{kind}" for layer in range(40) for kind in ("weight", "bias")),
            "half.weight",
            "half.bias",
        ]
    )
    assert {row["dtype"] for row in rows if "half.bias" in row["gradients"]} == {"float16"}
    assert sum(row["bytes"] for row in rows) == 40 * 501 * 500 * 4 + 110 * 2


def test_buckets_are_cut_as_torch_cuts_them() -> None:
    gradients = [Gradient(str(number), (1 << 18,), "float32") for number in range(30)]  # of 1 MiB
    sizes = [bucket.bytes >> 20 for bucket in buckets_of(gradients)]
    assert sizes == [1, 25, 4]
    assert [bucket.bytes >> 20 for bucket in buckets_of(gradients, 10)] == [10, 10, 10]
    assert buckets_of(gradients)[0].gradients[0].name == "29"
    assert buckets_of([Gradient("table", (10, 10), "float32", sparse=True)]) == []


def test_sparse_gradients_are_marked() -> None:
    assert [gradient.sparse for gradient in gradients_of("dlrm", None)].count(True) == 26
    assert not any(gradient.sparse for gradient in gradients_of("gpt2", None))
    assert gradients_of("vgg16", "bfloat16")[0].bytes == 3 * 64 * 9 * torch.bfloat16.itemsize


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--sizes", "large"], "--sizes: 'large' is not a size"),
        (["--dtype", "float31"], "--dtype: unknown dtype 'float31'"),
        (["--op", "mean_of"], "--op: unknown operator 'mean_of'"),
        (["allreduce"], 'unknown collective "allreduce"; there are all_reduce, '),
        (["broadcast", "--root", "9"], "root 9"),
        (["--algorithm", "rink"], "--algorithm: "),
        (["--json", "/nowhere/x.json"], "--json: cannot write"),
        (["--bucket-cap-mb", "5"], "--bucket-cap-mb is for --model"),
        (["--model", "resnet50", "--bucket-cap-mb", "0"], "--bucket-cap-mb: expected more than 0"),
        (["--model", "resnet50", "--sizes", "1M"], "--model: gradients have their own sizes"),
        (["broadcast", "--model", "resnet50"], "--model: gradients have their own sizes"),
        (["--model", "resnet51"], "--model: there is no 'resnet51', expected FILE.py:CALLABLE or one of resnet50"),
        (["--model", "none.py:Net"], "--model: no such file: none.py"),
        (["--model", "{}:Nett"], "--model: {} has nothing to call that is named 'Nett'"),
        (["--model", "{}:number"], "--model: {} has nothing to call that is named 'number'"),
        (["--model", "{}:broken"], "--model {}:broken: KeyError: 'it'"),
        (["--model", "{}:odd"], "--model {}:odd: returned int, expected a torch.nn.Module"),
        (["--hosts", "2"], "--hosts: "),
        (["--ranks-per-host", "1,2"], "--links: ranks per host: 2 numbers for 3 hosts"),
        (["--topology", "cluster.txt"], "--topology says it all: leave out --lab and --links"),
        (["--lab", "1gbit", "--hosts", "3"], "--hosts is for --links without --lab"),
    ],
)
def test_bad_input_is_one_line_and_2(
    arguments: list[str], complaint: str, links: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    arguments = [argument.format(path) for argument in arguments]
    assert main(["explain", *arguments, "--links", str(links)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("braid: " + complaint.format(path).partition("\n")[0]) or complaint in error
    assert error.count("\n") == 1


def test_what_is_no_topology_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.txt"
    path.write_text("topology hosts=0,1\nwithin alpha_s=1\n")
    for name, complaint in [
        (path, "--topology: line 2: expected"),
        (tmp_path / "none", f"--topology: {tmp_path}"),
    ]:
        assert main(["explain", "--topology", str(name)]) == 2
        assert capsys.readouterr().err.startswith(f"braid: {complaint}")


def test_what_is_no_file_of_links_is_refused(
    links: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    links.write_text('[between]\nrate = "fast"')
    none = tmp_path / "none.toml"
    for path, complaint in [(links, "between.rate is 'fast': expected a rate"), (none, "No such file")]:
        assert main(["explain", "--links", str(path)]) == 2
        assert capsys.readouterr().err.startswith(f"braid: --links: {path}: {complaint}")


def test_without_a_cluster_it_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("explain", "topo"):
        assert main([command]) == 2
        said = capsys.readouterr().err
        assert said.startswith("braid: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT not set: ")
        assert said.endswith("or say which cluster, for example --lab 3x1gbit,1x200mbit\n")


def test_words() -> None:
    assert shares_text([0.31, 0.31, 0.31, 0.07]) == "3 x 31%, 7%"
    assert shares_text([0.5, 0, 0.5]) == "50%, 0%, 50%"
    assert [seconds_text(value) for value in (0, 1.5e-7, 1.234567e-5, 0.0301, 2)] == [
        *("0.000 us", "0.150 us", "12.35 us", "30.10 ms", "2.000 s")
    ]
