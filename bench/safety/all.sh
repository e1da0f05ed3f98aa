#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All figures of this folder's page: bash bench/safety/all.sh [PYTHON], where PYTHON has another braid to measure beside.
set -euo pipefail
here=$(dirname "$0")
python=${BRAID_PYTHON:-python}
other=${1:-}
"$python" "$here/run.py" ${other:+--beside "$other"}
"$python" "$here/rendezvous.py" ${other:+--other "$other"}
"$python" "$here/kept.py" ${other:+--other "$other"}
