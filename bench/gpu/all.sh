#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with a GPU, without a network: builds braid with that machine's Python, runs the tests that need a GPU,
# then the benchmark. Everything worth keeping goes to $OUT (build/gpu without one). Takes under ten minutes.
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
timeout 280 "$python" -m pip install -q --no-deps --no-build-isolation --no-index --upgrade --target "$site" \
  --config-settings=build-dir=build/gpu-wheel --config-settings=cmake.define.BRAID_WITH_CUDA=ON . \
  > "$out/build.log" 2>&1 || { tail -n 40 "$out/build.log"; exit 1; }
"$python" -c 'import braid.cuda; print("kernels:", braid.cuda.image())' || exit 1

echo '--- tests'
timeout 240 "$python" -m pytest tests/gpu -m gpu -q --maxfail=20 -p no:cacheprovider --timeout=120 \
  2>&1 | tee "$out/tests.log" | tail -n 30
tests=${PIPESTATUS[0]}

echo '--- benchmark'
timeout 150 "$python" bench/gpu/run.py "$out/gpu.json" 2>&1 | tee "$out/bench.log"
bench=${PIPESTATUS[0]}
echo "tests: $tests, benchmark: $bench"
exit $((tests != 0 || bench != 0))
