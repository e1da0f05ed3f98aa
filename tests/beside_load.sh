#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command beside two busy loops and a disk writer: tests/beside_load.sh bash .ci/run
set -uo pipefail
folder=$(mktemp -d)
for _ in 1 2; do
  while :; do :; done &
done
while :; do dd if=/dev/zero of="$folder/block" bs=1M count=256 conv=fsync status=none; done &
trap 'kill $(jobs -p); wait; rm -rf "$folder"' EXIT 2> /dev/null
"$@"
