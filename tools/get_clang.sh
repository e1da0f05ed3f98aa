#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# get_clang.sh DIR: prints a clang++ that has libFuzzer and the sanitizers, or fails. The system's where it has them; else
# the Debian packages are unpacked into DIR; root is not needed.
set -euo pipefail
dir=$(mkdir -p "$1" && cd "$1" && pwd)

can_fuzz() {
  local probe found
  probe=$(mktemp -d)
  printf '#include <compare>\n#include <string>\nextern "C" int LLVMFuzzerTestOneInput(const char*, std::size_t) { return 0; }\n' \
    > "$probe/probe.cc"
  "$1" -std=c++20 -fsanitize=fuzzer,address,undefined "$probe/probe.cc" -o "$probe/probe" > /dev/null 2>&1 &&
    "$probe/probe" -runs=1 > /dev/null 2>&1
  found=$?
  rm -rf "$probe"
  return $found
}

for name in clang++ clang++-{21,20,19,18,17,16,15,14}; do
  if compiler=$(command -v "$name") && can_fuzz "$compiler"; then echo "$compiler"; exit 0; fi
done
if [ -x "$dir/clang++" ] && can_fuzz "$dir/clang++"; then echo "$dir/clang++"; exit 0; fi

if ! command -v apt-get > /dev/null || ! command -v dpkg > /dev/null; then
  echo "clang is not installed, and there is no apt-get to fetch it with" >&2
  exit 1
fi
cd "$dir"
own_lists=()
version_of_clang() { apt-cache "${own_lists[@]}" depends clang 2> /dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p'; }
fail() {
  echo "clang is not installed, and apt-get could not download it: $(tail -1 apt.log)" >&2
  exit 1
}
# Prints what to unpack: clang, and the libraries that it needs and the system lacks.
packages_of() {
  local wanted=(clang-"$1" libclang-cpp"$1" libllvm"$1" libclang-common-"$1"-dev libclang-rt-"$1"-dev)
  local known=()
  for package in "${wanted[@]}"; do
    # Older releases have the sanitizers in another of these.
    if apt-cache "${own_lists[@]}" show "$package" > /dev/null 2>&1; then known+=("$package"); fi
  done
  {
    printf '%s\n' "${known[@]}"
    apt-get "${own_lists[@]}" install --simulate --no-install-recommends "${known[@]}" 2> /dev/null | sed -n 's/^Inst \([^ ]*\).*/\1/p'
  } | sort -u
}
download() {
  local version
  version=$(version_of_clang)
  [ -n "$version" ] || { echo "no package clang" > apt.log; return 1; }
  # shellcheck disable=SC2046  # one word for each package
  apt-get "${own_lists[@]}" download $(packages_of "$version") > apt.log 2>&1
}
if ! download; then
  # A fresh container has no package lists; keep our own, since the system's may need root.
  mkdir -p lists/partial
  own_lists=(-o "Dir::State::lists=$dir/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
  apt-get "${own_lists[@]}" update > apt.log 2>&1 || fail
  download || fail
fi
for archive in ./*.deb; do dpkg -x "$archive" .; done
rm -rf ./*.deb apt.log lists
llvm=$(echo "$dir"/usr/lib/llvm-*)
cat > clang++ << EOF
#!/bin/sh
LD_LIBRARY_PATH="$dir/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2> /dev/null || echo "$(uname -m)-linux-gnu"):$llvm/lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" \\
  exec "$llvm/bin/clang++" "\$@"
EOF
chmod +x clang++
if can_fuzz "$dir/clang++"; then echo "$dir/clang++"; exit 0; fi
echo "clang was unpacked into $dir, but cannot build a fuzzer there" >&2
exit 1
