#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with a GPU, without a network: builds braid with that machine's Python, runs the tests that need a GPU,
# then the benchmarks: all_reduces of the GPU's tensors, and the kernels. Everything worth keeping goes to $OUT
# (build/gpu without one). Takes under ten minutes.
#
#   bash bench/gpu/all.sh [PYTHON]
set -uo pipefail
cd "$(dirname "$0")/../.."
python=${1:-python3}
out=${OUT:-build/gpu}
site=${TMPDIR:-/tmp}/braid-gpu-site
mkdir -p "$out"
export PYTHONUNBUFFERED=1 PYTHONPATH=$site BRAID_CACHE_DIR=${TMPDIR:-/tmp}/braid-gpu-cache

echo '--- build'
timeout 120 "$python" -m pip install -q --no-deps --no-build-isolation --no-index --upgrade --target "$site" \
  --config-settings=build-dir=build/gpu-wheel --config-settings=cmake.define.BRAID_WITH_CUDA=ON . \
  > "$out/build.log" 2>&1 || { tail -n 40 "$out/build.log"; exit 1; }
"$python" -c 'import braid.cuda; print("kernels:", braid.cuda.image())' || exit 1
timeout 60 "$python" -m braid.cli build && "$python" -m braid.cli info | tee "$out/info.txt" || exit 1

echo '--- tests'
# In several processes: one that a kernel hangs or kills is replaced, and told by the test's name.
timeout -k 10 300 "$python" -m pytest tests/gpu -m gpu -v -n 6 --maxfail=20 -p no:cacheprovider \
  --timeout=60 --timeout-method=thread \
  2>&1 | tee "$out/tests.log" | tail -n 30
tests=${PIPESTATUS[0]}

echo '--- all_reduces of tensors, beside Gloo and the goals'
timeout 100 "$python" bench/gpu/goals.py "$out" 2>&1 | tee "$out/goals.log"
goals=${PIPESTATUS[0]}

echo '--- benchmark of the kernels'
timeout 130 "$python" bench/gpu/run.py "$out/gpu.json" 2>&1 | tee "$out/bench.log"
bench=${PIPESTATUS[0]}
echo "tests: $tests, all_reduces: $goals, kernels: $bench"
exit $((tests != 0 || goals != 0 || bench != 0))
