#!/usr/bin/env bash
# The main job from a fresh clone: installs pdnn into .venv and trains on two MPI ranks. Arguments go to train.py.
set -euo pipefail
cd "$(dirname "$0")"
. scripts/environment.sh

enter_venv
if ! installed; then
  echo "Installing pdnn into .venv (a few minutes, once)"
  install_pdnn .
fi

if [ "$(id -u)" = 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
crowd=()
if [ "$(python -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())')" -lt 2 ]; then
  crowd=(--oversubscribe)
fi
exec mpiexec ${crowd[@]+"${crowd[@]}"} -n 2 python train.py "$@"
