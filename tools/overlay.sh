# For other scripts: builds a variant of the kernels and runs commands on it. The installed package stays as it is: `on_overlay COMMAND` sees an
# overlay of the sources with that module in place.
#
#   . tools/overlay.sh; build_overlay NAME PYTHON CMAKE_OPTION...; on_overlay python ...

build_overlay() {
    local name=$1 source
    python=$(command -v "$2")
    shift 2
    build=$PWD/build/$name
    overlay=$build/overlay
    PATH=$(dirname "$python"):$PATH
    mkdir -p "$build"

    "$python" -c 'import nanobind' 2>/dev/null && command -v cmake ninja >/dev/null ||
        "$python" -m pip install --quiet --disable-pip-version-check cmake ninja nanobind

    cmake -S . -B "$build" -G Ninja "$@" -DPython_EXECUTABLE="$python" \
        -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
    cmake --build "$build"

    # The overlay: links to the sources, and to the module.
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
}

on_overlay() { env PYTHONPATH="$overlay" "$@"; }

# Stops if a command, given before "python" as those of `on_overlay` are, would find the installed module.
check_overlay() {
    "$@" "$python" - "$overlay" <<'PYTHON'
import sys

import poolgrad.cpu

found = poolgrad.cpu._kernels.__file__
assert found.startswith(sys.argv[1]), f"the tests would run on {found}"
print("on", found)
PYTHON
}
