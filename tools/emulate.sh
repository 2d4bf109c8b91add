#!/usr/bin/env bash
# Builds the AVX-512 kernels for a processor that has only AVX2 (avx512.hpp) and runs the suites of the kernels on them:
# tools/emulate.sh PYTHON [PYTEST ARGUMENTS]
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/overlay.sh

build_overlay emulate "${1:?usage: tools/emulate.sh PYTHON [PYTEST ARGUMENTS]}" "-DPOOLGRAD_ONLY=-O2;-march=x86-64-v3;-include;$PWD/tools/avx512.hpp"
shift
check_overlay on_overlay

if [[ "$*" != *tests/* ]]; then
    set -- "$@" tests/test_kernels.py tests/test_strides.py tests/test_golden.py tests/test_laws.py tests/test_maps.py
fi
on_overlay "$python" -m pytest -p no:cacheprovider "$@"
