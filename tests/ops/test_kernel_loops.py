"""The loops of compiled kernels count no references: each count is a locked instruction that waits for all stores."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Every kernel of a training step, compiled here and now: Numba shows no code that it took from its cache.
PROGRAM = """
import torch
from numba.core.dispatcher import Dispatcher

compiled, compile = [], Dispatcher.compile
Dispatcher.compile = lambda self, signature: (compile(self, signature), compiled.append(self))[0]

from resofire import models, nn

for features, neuron in ((96, nn.PRFConfig()), (128, nn.LIFConfig())):
    config = models.ClassifierConfig(
        inputs=2, classes=3, features=features, depth=1, neuron=neuron, bidirectional=True, dropout=0.1
    )
    config.build()(torch.randn(4, 70, 2)).sum().backward()
nn.SpikeLinear(96, 40)((torch.rand(40, 100, 96) < 0.1).float().requires_grad_()).sum().backward()
nn.ALIF(96)(torch.randn(2, 70, 96, requires_grad=True)).sum().backward()
seen = set()
for kernel in compiled:
    function = kernel.py_func
    if function.__module__.startswith("resofire.ops") and function.__name__[0] != "_" and id(kernel) not in seen:
        seen.add(id(kernel))
        for code in kernel.inspect_asm().values():
            print("KERNEL", function.__module__, function.__qualname__)
            print(code.split(".Lfunc_end0")[0])
"""
TOP_LEVEL = re.compile(r"KERNEL (\S+) (\S*<locals>\S+|forward|backward)\n")


def in_loops(code):
    """The lines between a label and a jump back to it that call Numba's reference counts."""
    lines = code.splitlines()
    labels = {match[1]: i for i, line in enumerate(lines) if (match := re.match(r"(\.L\w+):", line))}
    jumps = [re.match(r"\s+(j\w+)\s+(\.L\w+)", line) for line in lines]
    loops = [(labels[jump[2]], i) for i, jump in enumerate(jumps) if jump and labels.get(jump[2], i) < i]

    def returns(i):
        """Whether what follows line i leads to the end of the function: compilers put that anywhere."""
        for _ in range(len(lines)):
            if i >= len(lines) or "retq" in lines[i]:
                return True
            jump = jumps[i]
            if jump and jump[1] != "jmp":
                return False
            i = labels[jump[2]] if jump else i + 1
        return False

    counts = [i for i, line in enumerate(lines) if "NRT_incref" in line or "NRT_decref" in line]
    inside = [i for i in counts if any(first <= i <= last for first, last in loops)]
    return [lines[i].strip() for i in inside if not returns(i)]


def test_calls_in_loops_are_seen():
    loop = ".LBB0_1:\n\tmovabsq\t$NRT_incref, %rax\n\tcallq\t*%rax\n\tjne\t.LBB0_1\n"
    assert len(in_loops(loop)) == 1
    assert not in_loops(loop.replace("jne\t.LBB0_1", "retq"))
    # The end of a function in front of a loop that leaves for it.
    assert not in_loops(loop.replace("jne\t.LBB0_1", "retq") + ".LBB0_2:\n\tje\t.LBB0_1\n\tjmp\t.LBB0_2\n")


@pytest.mark.deep
def test_no_kernel_counts_references_in_its_loops(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pieces = TOP_LEVEL.split(done.stdout)[1:]
    kernels = list(zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True))
    assert len({(module, name) for module, name, _ in kernels}) >= 8
    assert {f"{module} {name}" for module, name, code in kernels if in_loops(code)} == set()
