"""The GPU kernels compile for a real GPU, without one: the interpreter forgives what a compiler does not."""

import os
import subprocess
import sys
import textwrap

import pytest

PROGRAM = textwrap.dedent(
    """
    import sys
    import torch, triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from poolgrad.gpu import Gpu, gradients, launch, rows, sums, winners
    from poolgrad.windows import Pool, adaptive, explicit, regular

    POINTERS = {torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float64: "*fp64", torch.int64: "*i64",
                torch.int32: "*i32", torch.uint8: "*u8", torch.int8: "*i8", torch.uint16: "*u16", torch.int16: "*i16"}
    compiled = []

    class Compiling:
        def __init__(self, kernel):
            self.kernel, self.arg_names = kernel, kernel.arg_names

        def __getitem__(self, grid):
            return self.compile

        def compile(self, *arrays, num_warps=4, enable_fp_fusion=True, maxnreg=None, **named):
            given = dict(zip(self.kernel.arg_names, arrays)) | named
            signature, constants = {}, {}
            for i, p in enumerate(self.kernel.params):
                value = given[p.name]
                if p.is_constexpr:
                    signature[p.name], constants[(i,)] = "constexpr", value
                else:
                    signature[p.name] = POINTERS[value.dtype] if isinstance(value, torch.Tensor) else "i32"
            source = ASTSource(fn=self.kernel, signature=signature, constexprs=constants)
            options = {"num_warps": num_warps, "enable_fp_fusion": enable_fp_fusion, "maxnreg": maxnreg}
            asm = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm
            assert "ld.global" in asm["ptx"]
            assert not launch.miscompiled(asm["llir"]), self.kernel.__name__
            compiled.append(self.kernel.__name__)

    for module, names in ((winners, "scan take members"), (sums, "mean"),
                          (gradients, "put put_listed max_put put_any segments"),
                          (rows, "scan_rows scan_chunks mean_rows")):
        for name in names.split():
            setattr(module, name, Compiling(getattr(module, name)))

    launch._packs = lambda device, dtype: dtype == torch.bfloat16
    gpu = Gpu()
    pools = [
        Pool((2, 3, 8, 8), 2, (regular(8, 2),) * 2, 2),
        Pool((2, 9, 9, 20), 1, (explicit(9, 3, 2, 1, 1),) * 2, 2),
        Pool((2, 3, 9, 9), 2, (adaptive(9, 4),) * 2, 2),
        Pool((2, 90), 1, (regular(90, 70, 1),), 2),
    ]
    dtypes = torch.float32, torch.bfloat16, torch.int64
    for number, pool in enumerate(pools):
        for dtype in dtypes if number == 0 or "all" in sys.argv else [dtypes[number % 3]]:
            x, g = torch.zeros(pool.shape, dtype=dtype), torch.zeros(pool.out_shape, dtype=dtype)
            code = torch.zeros(pool.out_shape, dtype=torch.uint8)
            gpu.maximum_and_choice(pool, x, "propagate")
            gpu.max_take(pool, x, x, "first", "propagate")
            gpu.take(pool, x, code)
            gpu.put(pool, g, code)
            gpu.mean(pool, x)
            gpu.spread(pool, g)
            gpu.max_put(pool, x, g, "first", "ignore", equal_to=g)
            gpu.max_take(pool, x, x, "first", "ignore", equal_to=g)
        gpu.max_put(pool, x, g, "split", "propagate")
        gpu.max_take(pool, x, x, "all", "propagate")
        gpu.index_put(pool, g, torch.zeros(pool.out_shape, dtype=torch.int64), "image")

    # Volumes: LLVM once joined the sizes of an axis with the lanes of another. Rows of short floats are read in chunks.
    windows = explicit(4, 3, 2, 1, 1), explicit(4, 3, 2, 1, 1), explicit(40, 3, 2, 1, 1)
    few, rows = Pool((2, 4, 4, 40, 2), 1, windows, 2), Pool((2, 3, 4, 4, 40), 2, windows, 2)
    gpu.mean(few, torch.zeros(few.shape))
    gpu.choose(rows, torch.zeros(rows.shape, dtype=torch.bfloat16), "propagate")
    print(*sorted(set(compiled)))
    """
)


KERNELS = [
    "max_put", "mean", "mean_rows", "members", "put", "put_any", "put_listed", "scan", "scan_chunks",
    "scan_rows", "segments", "take",
]  # fmt: skip


@pytest.mark.parametrize("dtypes", ["some", pytest.param("all", marks=pytest.mark.full)])
def test_every_kernel_compiles(dtypes, tmp_path):
    """For every kind of windows with one dtype, for the plainest and in the full tests for all of them with three."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    script = tmp_path / "compile_kernels.py"
    script.write_text(PROGRAM)
    run = subprocess.run([sys.executable, str(script), dtypes], env=environment, capture_output=True, text=True)
    if "ptxas" in run.stderr and "not found" in run.stderr:
        pytest.skip("this Triton came without a compiler for GPUs")
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.split() == KERNELS
