#!/usr/bin/env bash
# Builds the kernels with AddressSanitizer and UndefinedBehaviorSanitizer and runs the suites that feed them every kind of
# geometry and every malformed call: tools/sanitize.sh PYTHON [PYTEST ARGUMENTS]
#
# POOLGRAD_SANITIZED tells the tests that memory is limited by the sanitizer's allocator, not by the address space.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/overlay.sh

build_overlay sanitize "${1:?usage: tools/sanitize.sh PYTHON [PYTEST ARGUMENTS]}" -DPOOLGRAD_SANITIZE=ON
shift

# The runtime of the compiler that built the module comes first, and with it what its interceptors look up at start.
compiler=$(sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
runtime=$("$compiler" -print-file-name=libasan.so)
[[ $runtime == /* ]] || runtime=$("$compiler" -print-file-name="libclang_rt.asan-$(uname -m).so")

# (No detect_stack_use_after_return, which newer compilers have on: GCC's stand-in for the stack is not aligned for vectors of 64 bytes.)
ulimit -c 0
sanitised() {
    on_overlay env LD_PRELOAD="$runtime $("$compiler" -print-file-name=libstdc++.so.6)" \
        ASAN_OPTIONS=abort_on_error=1:detect_leaks=0:detect_stack_use_after_return=0:allocator_may_return_null=1:max_allocation_size_mb=1024:strict_string_checks=1 \
        UBSAN_OPTIONS=abort_on_error=1:print_stacktrace=1:halt_on_error=1 \
        PYTHONMALLOC=malloc POOLGRAD_SANITIZED=1 POOLGRAD_CACHE_MIB=0 POOLGRAD_NUM_THREADS=3 \
        "$@"
}
check_overlay sanitised

if (($# == 0)); then   # arrays of many megabytes have nothing new to show, and take long here
    set -- tests/test_golden.py tests/test_malformed.py tests/test_kernels.py -k "not large_arrays"
fi
sanitised "$python" -m pytest -p no:cacheprovider --capture=sys "$@"   # what a sanitizer writes is seen
