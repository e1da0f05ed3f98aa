# SPDX-License-Identifier: Apache-2.0
"""Unedited scripts of frameworks train as on Gloo, with strategies, and with balanced batches."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from slowness import limit

pytestmark = [pytest.mark.multiprocess, pytest.mark.long]

FOLDER = Path(__file__).resolve().parent / "frameworks"
NEEDS = {
    "with_lightning": ("lightning",),
    "with_trainer": ("transformers", "accelerate"),
    "with_ignite": ("ignite",),
    "with_mmengine": ("mmengine",),
    "with_trl": ("trl",),
    "with_deepspeed": ("deepspeed",),
    "with_ray": ("ray",),
}
VALIDATE = list(NEEDS)[:3]  # these validate in between, and keep the best model
PACKAGES = {"ignite": "pytorch-ignite"}
GOOD = 0.85  # guessing has 0.5


def train(
    script: str, text: str, folder: Path, takeover: str | None = None, **environment: str
) -> tuple[list[dict[str, Any]], str]:
    """Return what each rank reports, and what all of them say."""
    for name in NEEDS[script]:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install {PACKAGES.get(name, name)}")
    options = ["--strategy", text] if text else []
    options += ["--takeover", takeover] if takeover is not None else []
    launcher = ["-m", "braid.cli", "run", "--nproc", "2", *options]
    if script == "with_ray":  # it starts its ranks itself
        launcher = []
        environment |= {"BRAID_STRATEGY": text, "BRAID_TAKEOVER": "gloo" if takeover is None else takeover}
    done = subprocess.run(
        [sys.executable, *launcher, str(FOLDER / f"{script}.py"), str(folder)],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu", **environment},
        capture_output=True,
        text=True,
        timeout=limit(200),
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    if script != "with_ray":  # whose own actors complain if they find the Ray of another test
        assert "Traceback" not in done.stderr, done.stderr
    said = done.stdout + done.stderr
    return [json.loads((folder / f"report.{rank}").read_text()) for rank in range(2)], said


@pytest.mark.parametrize("script", list(NEEDS))
def test_the_model_is_that_of_gloo(script: str, tmp_path: Path) -> None:
    is_as_with_gloo(script, tmp_path)


@pytest.mark.parametrize("stage", ["2", "3"])
def test_deepspeed_shards_more(stage: str, tmp_path: Path) -> None:
    is_as_with_gloo("with_deepspeed", tmp_path, ZERO_STAGE=stage)


def is_as_with_gloo(script: str, folder: Path, **environment: str) -> None:
    ways = {"gloo": {"takeover": ""}, "unedited": {}, "named": {"takeover": "", "NAMES_BRAID": "1"}}
    found = {}
    for way, how in ways.items():
        (folder / way).mkdir()
        found[way], said = train(script, "", folder / way, **how, **environment)
        assert ("2 ranks on 1 host" in said) == (way != "gloo"), said
    assert found["gloo"] == found["unedited"] == found["named"]
    assert found["gloo"][0]["sum"] == found["gloo"][1]["sum"]
    assert found["gloo"][0]["best"] > GOOD


@pytest.mark.parametrize("script", ["with_mmengine", "with_trl", "with_ray"])
@pytest.mark.parametrize("text", ["local:sync_every=5", "gossip"])
def test_a_strategy_without_validation(script: str, text: str, tmp_path: Path) -> None:
    reports, said = train(script, text, tmp_path)
    assert said.count(f"braid: strategy {text!r}: found ") == 1, said
    assert reports[0]["best"] > GOOD


def test_a_strategy_needs_ddp(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="BRAID_STRATEGY needs a module in DistributedDataParallel"):
        train("with_deepspeed", "local:sync_every=5", tmp_path)


@pytest.mark.parametrize("script", VALIDATE)
@pytest.mark.parametrize(
    "text",
    [
        "local:sync_every=5",
        "diloco:sync_every=8,num_fragments=2",
        "gossip",
        "parameter_server:mode=async",
        "local:sync_every=5,quorum=2,grace_s=5",
    ],
)
def test_a_strategy(script: str, text: str, tmp_path: Path) -> None:
    reports, stderr = train(script, text, tmp_path)
    assert stderr.count(f"braid: strategy {text!r}: found Net with") == 1, stderr
    first, second = reports
    # All validate one centre, and what is saved is the centre that was best: with the values of one worker alone
    # the two would differ. In a strategy that waits for nobody the centre moves on in between.
    assert first["validated"] == pytest.approx(second["validated"])
    assert first["best"] == pytest.approx(second["best"])
    if (
        script == "with_ignite"
    ):  # its process group ends after the model has been left, and all is the centre's then
        assert first["sum"] == second["sum"]
        assert first["best"] > GOOD
        assert first["steps"] == 80
        return
    # With a quorum the parameters are still, but others' BatchNorm statistics may come: nobody waits for them.
    is_still = text.startswith(("local:sync_every=5", "diloco")) and "quorum" not in text
    assert first["saved"] == pytest.approx(first["best"], abs=1e-6 if is_still else 0.1)
    assert first["sum"] == second["sum"], "both read the same file"
    assert first["saved"] > GOOD
    assert first["steps"] == (80 if script == "with_lightning" else 40)
    if script == "with_trainer":
        loaded = pytest.approx(first["best"], abs=1e-6 if is_still else 0.1)
        assert first["validated"] == loaded, "the best model was loaded at the end"
    else:
        assert first["rate"] == pytest.approx(0.1 * 0.9**4)


def test_balanced_batches_with_lightning(tmp_path: Path) -> None:
    reports, stderr = train("with_lightning", "", tmp_path, BRAID_BALANCE="1")
    assert stderr.count("balanced batches: a DataLoader with a DistributedSampler, 400 samples") == 1, stderr
    assert reports[0]["best"] > GOOD
    assert reports[0]["sum"] == reports[1]["sum"]


def test_balanced_batches_with_trainer_are_refused(tmp_path: Path) -> None:
    reports, stderr = train("with_trainer", "", tmp_path, BRAID_BALANCE="1")
    assert (
        stderr.count("BRAID_BALANCE leaves the batches of accelerate and of Hugging Face's Trainer as they") == 1
    )
    assert stderr.count("balanced batches:") == 1, stderr
    assert reports[0]["best"] > GOOD
