"""What an import needs: PyTorch where it is asked for, and the compiled kernels only where they are used."""

import subprocess
import sys


def run(source):
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


def test_without_pytorch_the_error_says_what_to_install():
    said = run("import sys; sys.modules['torch'] = None\nimport poolgrad\nimport poolgrad.torch")
    assert "pip install 'poolgrad[torch]'" in said


def test_poolgrad_itself_does_not_import_pytorch():
    assert run("import sys, poolgrad; print('torch' in sys.modules)").strip() == "False"


def test_without_the_compiled_kernels_everything_imports_and_their_first_use_says_so():
    said = run(
        "import sys; sys.modules['poolgrad.cpu._kernels'] = None\n"
        "import torch, poolgrad, poolgrad.torch as pt\n"
        "print(pt.max_pool2d(torch.ones(1, 4, 4, device='meta'), 2).shape)\n"
        "try: pt.max_pool2d(torch.ones(1, 4, 4), 2)\n"
        "except poolgrad.errors.MissingKernels as error: print('missing:', error)\n"
    )
    assert "torch.Size([1, 2, 2])" in said
    assert "missing: the compiled CPU kernels" in said
