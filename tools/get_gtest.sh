#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# get_gtest.sh DIR: prints a CMake prefix that has GoogleTest, or fails. Nothing is printed when the system has it.
# It is on no Python index, so where it is missing the Debian package is unpacked into DIR; root is not needed.
set -euo pipefail
dir=$(mkdir -p "$1" && cd "$1" && pwd)

finds_gtest() {
  local probe
  probe=$(mktemp -d)
  printf 'cmake_minimum_required(VERSION 3.22)\nproject(probe CXX)\nfind_package(GTest REQUIRED)\n' \
    > "$probe/CMakeLists.txt"
  cmake -S "$probe" -B "$probe/build" "$@" > /dev/null 2>&1
  local found=$?
  rm -rf "$probe"
  return $found
}

if finds_gtest; then exit 0; fi
if finds_gtest "-DCMAKE_PREFIX_PATH=$dir/usr"; then echo "$dir/usr"; exit 0; fi

if ! command -v apt-get > /dev/null || ! command -v dpkg > /dev/null; then
  echo "GoogleTest is not installed, and there is no apt-get to fetch it with" >&2
  exit 1
fi
cd "$dir"
packages=(libgtest-dev libgmock-dev googletest)
if ! apt-get download "${packages[@]}" > apt.log 2>&1; then
  # A fresh container has no package lists; keep our own, since the system's may need root.
  mkdir -p lists/partial
  own_lists=(-o "Dir::State::lists=$dir/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
  if ! { apt-get "${own_lists[@]}" update && apt-get "${own_lists[@]}" download "${packages[@]}"; } > apt.log 2>&1; then
    echo "GoogleTest is not installed, and apt-get could not download it: $(tail -1 apt.log)" >&2
    exit 1
  fi
fi
for archive in ./*.deb; do dpkg -x "$archive" .; done
rm -rf ./*.deb apt.log lists
if finds_gtest "-DCMAKE_PREFIX_PATH=$dir/usr"; then echo "$dir/usr"; exit 0; fi
echo "GoogleTest was unpacked into $dir, but CMake does not find it there" >&2
exit 1
