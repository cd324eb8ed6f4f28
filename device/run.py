"""Runs an exported network on an emulated Cortex-M4: same bits as the simulation, sizes, instructions, energy.

    python device/run.py [MODEL] [--data NAME] [--samples 5] [--weight-bits 8] [--state-bits 16]

MODEL is a shipped name, a run folder or a file; --data is needed for a file that lies in no run folder. Without MODEL,
"smnist" if it is shipped and its data is there, else "digits". Needs Debian's gcc-arm-none-eabi,
libnewlib-arm-none-eabi and qemu-system-arm; says so, and ends well, where they are absent. Exit 1 if a bit differs.

Instructions are counted by QEMU (-icount shift=0: one nanosecond of its clock each) and read through SysTick; a loop of
known length sets the scale. They are exact to one tick (40 instructions) in a whole sequence. They are not cycles: a
Cortex-M4 takes one cycle for most of them, more for loads, taken branches and flash that waits.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np

from resofire import data, models, train
from resofire.deploy.c import _type, digests, expected, write
from resofire.deploy.fold import fold
from resofire.deploy.quantize import quantize
from resofire.deploy.simulate import Simulation

HERE = Path(__file__).resolve().parent
TOOLS = ("arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm")
CPU = ("-mcpu=cortex-m4", "-mthumb")
WARN = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffunction-sections", "-fdata-sections")
QEMU = (
    "qemu-system-arm -M mps2-an386 -display none -monitor none -serial none -chardev stdio,id=out "
    "-semihosting-config enable=on,target=native,chardev=out -icount shift=0 -kernel"
)
LOOP = 2_000_000
# An assumption: STM32L412xx (Cortex-M4), data sheet DS12469: 79 µA/MHz in run mode; at 3.0 V that is 237 pJ a cycle,
# for the whole chip with its flash; and one cycle an instruction.
PICOJOULES = 237.0
SCALES_FROM = 64


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="a shipped name, a run folder or a file")
    parser.add_argument("--data", help="the data set; the one it was trained on if not given")
    parser.add_argument("--samples", type=int, default=5, help="sequences of the test split to run")
    parser.add_argument("--weight-bits", type=int, default=8, choices=(8, 6, 4))
    parser.add_argument("--state-bits", type=int, default=16, choices=(16, 24, 32))
    parser.add_argument("--optimise", default="-O2", choices=("-O1", "-O2", "-O3", "-Os"))
    parser.add_argument("--picojoules", type=float, default=PICOJOULES, help="energy of an instruction, an assumption")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    if given.samples < 1:
        parser.error(f"--samples must be at least 1, got {given.samples}")
    if given.json and (given.json.is_dir() or not given.json.parent.is_dir()):
        parser.error(f"--json must be a file in a folder that exists, got {given.json}")
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        print(
            f"device: skipped, {', '.join(absent)} not found "
            "(Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm)"
        )
        return 0
    try:
        model, task = choose(given.model, given.data)
    except (ValueError, TypeError, data.DataError, train.RunError) as error:
        parser.error(str(error))
    scales = sequences(task, "train", SCALES_FROM, seed=0)[0]
    samples, labels = sequences(task, "test", given.samples)
    quantized = quantize(fold(model), scales, weight_bits=given.weight_bits, state_bits=given.state_bits)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write(quantized, place / "network.h", "network")
        (place / "shape.h").write_text(shape(quantized))
        (place / "samples.h").write_text(arrays(quantized, samples))
        timed, flash, ram, image = build(place, given.optimise, check=False)
        checked, *_ = build(place, given.optimise, check=True)
        quick, exact = run(timed), run(checked)
    return report(given, task.name, quantized, samples, labels, quick, exact, (flash, ram, image))


def choose(name, wanted):
    if name is None:
        name = "digits"
        if "smnist" in models.shipped():
            try:
                return choose("smnist", wanted)
            except data.DataError as error:
                print(f"device: digits instead of smnist: {error}")
    path = models.find(name)
    model = models.load(path)
    if wanted:
        return model, data.load(wanted)
    folder = path.parent if path.is_file() else path
    if not (folder / "run.json").exists():
        raise ValueError(f"--data must be given, since {folder} has no run.json that tells it")
    config = train.RunConfig.from_json(train.read(folder)["config"])
    return model, data.load(config.task, **config.task_settings)


def sequences(task, split, count, seed=None):
    """Some sequences of a split as arrays, one by one, and their labels."""
    batch = next(task.splits[split].batches(count, seed=seed))
    x = batch.x.numpy()
    if batch.cu_seqlens is None:
        return list(x), batch.labels.numpy()
    bounds = batch.cu_seqlens.numpy()
    return [x[0, a:b] for a, b in pairwise(bounds)], batch.labels.numpy()


def shape(quantized):
    """Sizes for the C files."""
    states = " ".join(digests(quantized, "").split())
    return (
        f"#define STATES {states}\n"
        f"typedef {_type(quantized)} input_t;\n#define INPUT(x) {'*(x)' if quantized.tokens else '(x)'}\n"
        f"#define INPUTS {1 if quantized.tokens else len(quantized.table)}\n"
        f"#define CLASSES {len(quantized.bias)}\n#define LAYERS {len(quantized.layers)}\n"
    )


def arrays(quantized, samples):
    codes = np.concatenate([quantized.encode(x).reshape(-1) for x in samples])
    return (
        f"#define SAMPLES {len(samples)}\n"
        f"static const uint32_t lengths[SAMPLES] = {{{', '.join(str(len(x)) for x in samples)}}};\n"
        f"static const input_t samples[{codes.size}] = {{\n{', '.join(map(str, codes))}}};\n"
    )


def build(place, optimise, check):
    """The image, and the bytes of flash and RAM of the network alone, and both of the whole image."""
    name = "checked" if check else "timed"
    define = ["-DCHECK"] if check else []
    objects = []
    for source in ("network.c", "main.c", "start.c"):
        made = place / f"{name}-{source[:-2]}.o"
        call(
            "arm-none-eabi-gcc",
            *CPU,
            *WARN,
            optimise,
            *define,
            "-I",
            place,
            "-I",
            HERE,
            "-c",
            HERE / source,
            "-o",
            made,
        )
        objects.append(made)
    image = place / f"{name}.elf"
    call("arm-none-eabi-gcc", *CPU, "-nostartfiles", "--specs=nosys.specs", "-Wl,--gc-sections",
         "-T", HERE / "link.ld", *objects, "-o", image)  # fmt: skip
    flash, ram = size(objects[0])
    return image, flash, ram, size(image)


def size(file):
    text, initial, zero = map(int, call("arm-none-eabi-size", file).splitlines()[1].split()[:3])
    return text + initial, initial + zero


def run(image):
    """Lines of integers."""
    lines = call(*QEMU.split(), image, timeout=600).splitlines()
    return [[int(word, 16) for word in line.split()] for line in lines]


def call(*words, timeout=120):
    try:
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise SystemExit(f"device: {words[0]} did not end within {timeout} seconds") from None
    if done.returncode:
        raise SystemExit(
            f"device: {words[0]} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-2000:]}"
        )
    return done.stdout


def report(given, name, quantized, samples, labels, quick, exact, sizes):
    simulation, equal, right, classes = Simulation(quantized), 0, 0, len(quantized.bias)
    for x, label, fast, slow in zip(samples, labels, quick[1:], exact[1:], strict=True):
        told = expected(simulation, x)
        wanted = [int(word) % 2**64 for word in told[-2]] + [int(word) for word in told[-1]]
        equal += slow[:-1] == wanted and fast[:-1] == wanted[:classes] + wanted[classes + 1 :]
        scores = np.array(fast[:classes], np.uint64).view(np.int64)
        right += int(np.all(scores.argmax() == np.asarray(label).reshape(-1)[-1]))
    steps = sum(map(len, samples))
    ticks = sum(line[-1] for line in quick[1:])
    instructions = ticks * LOOP / quick[0][0] / steps
    spikes = sum(sum(line[classes:-1]) for line in quick[1:]) / steps
    flash, ram, image = sizes
    figures = {
        "model": given.model or name, "data": name, "weight_bits": quantized.weight_bits,
        "state_bits": quantized.state_bits, "optimise": given.optimise, "samples": len(samples), "equal": equal,
        "right": right, "steps": steps, "flash_bytes": flash, "ram_bytes": ram, "image_flash_bytes": image[0],
        "image_ram_bytes": image[1], "instructions_per_tick": LOOP / quick[0][0], "spikes_per_step": spikes,
        "instructions_per_step": instructions, "picojoules_per_instruction": given.picojoules,
        "microjoules_per_step": instructions * given.picojoules * 1e-6,
        "microjoules_per_sequence": instructions * given.picojoules * 1e-6 * steps / len(samples),
    }  # fmt: skip
    print(
        f"{figures['model']} on {name}: {quantized.weight_bits} bit weights, {quantized.state_bits} bit states, "
        f"{given.optimise}"
    )
    print(
        f"same bits as the simulation   {equal} of {len(samples)} sequences, spikes, states and scores; {right} right"
    )
    print(f"network: flash, RAM           {flash:,} and {ram:,} bytes, without the stack")
    print(f"whole image: flash, RAM       {image[0]:,} and {image[1]:,} bytes, with the test sequences")
    print(f"instructions per step         {instructions:,.0f}, at {spikes:.1f} spikes; QEMU's count, not cycles")
    print(
        f"energy per step               {figures['microjoules_per_step']:.2f} µJ, and "
        f"{figures['microjoules_per_sequence'] / 1e3:.2f} mJ a sequence, at {given.picojoules:g} pJ an instruction"
    )
    if given.json:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if equal == len(samples) else 1


if __name__ == "__main__":
    sys.exit(main())
