#!/usr/bin/env bash
# Builds the kernels with AddressSanitizer and UndefinedBehaviorSanitizer and runs the suites that feed them every kind of
# geometry and every malformed call: tools/sanitize.sh PYTHON [PYTEST ARGUMENTS]
#
# The installed package stays as it is: the tests see an overlay of the sources with the sanitised module in place.
# POOLGRAD_SANITIZED tells the tests that memory is limited by the sanitizer's allocator, not by the address space.
set -euo pipefail
cd "$(dirname "$0")/.."

python=$(command -v "${1:?usage: tools/sanitize.sh PYTHON [PYTEST ARGUMENTS]}")
shift
build=$PWD/build/sanitize
overlay=$build/overlay
PATH=$(dirname "$python"):$PATH
mkdir -p "$build"

"$python" -c 'import nanobind' 2>/dev/null && command -v cmake ninja >/dev/null ||
    "$python" -m pip install --quiet --disable-pip-version-check cmake ninja nanobind

cmake -S . -B "$build" -G Ninja -DPOOLGRAD_SANITIZE=ON -DPython_EXECUTABLE="$python" \
    -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
cmake --build "$build"

# The overlay: links to the sources, and to the sanitised module.
rm -rf "$overlay"
mkdir -p "$overlay/poolgrad/cpu"
for source in src/poolgrad/* src/poolgrad/cpu/*.py; do
    [[ $source == */cpu || $source == *__pycache__ ]] || ln -s "$PWD/$source" "$overlay/${source#src/}"
done
ln -s "$build"/_kernels*.so "$overlay/poolgrad/cpu/"
# An editable installation finds its package before PYTHONPATH is looked at; here it must not.
cat >"$overlay/sitecustomize.py" <<'PYTHON'
import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__name__.startswith("ScikitBuild")]
PYTHON

# The runtime of the compiler that built the module comes first, and with it what its interceptors look up at start.
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
runtime=$("$compiler" -print-file-name=libasan.so)
[[ $runtime == /* ]] || runtime=$("$compiler" -print-file-name="libclang_rt.asan-$(uname -m).so")

# (No detect_stack_use_after_return, which newer compilers have on: GCC's stand-in for the stack is not aligned for vectors of 64 bytes.)
ulimit -c 0
sanitised() {
    env LD_PRELOAD="$runtime $("$compiler" -print-file-name=libstdc++.so.6)" \
        ASAN_OPTIONS=abort_on_error=1:detect_leaks=0:detect_stack_use_after_return=0:allocator_may_return_null=1:max_allocation_size_mb=1024:strict_string_checks=1 \
        UBSAN_OPTIONS=abort_on_error=1:print_stacktrace=1:halt_on_error=1 \
        PYTHONMALLOC=malloc PYTHONPATH="$overlay" POOLGRAD_SANITIZED=1 POOLGRAD_CACHE_MIB=0 POOLGRAD_NUM_THREADS=3 \
        "$@"
}

sanitised "$python" - "$overlay" <<'PYTHON'
import sys

import poolgrad.cpu

found = poolgrad.cpu._kernels.__file__
assert found.startswith(sys.argv[1]), f"the tests would run on {found}"
print("sanitised:", found)
PYTHON

if (($# == 0)); then   # arrays of many megabytes have nothing new to show, and take long here
    set -- tests/test_golden.py tests/test_malformed.py tests/test_kernels.py -k "not large_arrays"
fi
sanitised "$python" -m pytest -p no:cacheprovider --capture=sys "$@"   # what a sanitizer writes is seen
