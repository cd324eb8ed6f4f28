"""Run an exported network on an emulated Cortex-M4: same bits as the simulation, sizes, instructions, energy.

    python device/run.py [MODEL] [--data NAME] [--samples 5] [--weight-bits 8] [--state-bits 16]

MODEL is a shipped name, a run folder or a file; --data is needed for a file outside a run folder. The default is
"smnist" if it is shipped and its data is there, else "digits". Needs Debian's gcc-arm-none-eabi,
libnewlib-arm-none-eabi and qemu-system-arm; without them it says so and exits with 0. Exit code 1 if a bit differs.

QEMU counts the instructions (-icount shift=0: one nanosecond of its clock each); they are read through SysTick, and a
loop of known length sets the scale. The count is exact to one tick (40 instructions) over a whole sequence. It is not
a number of cycles: a Cortex-M4 takes one for most instructions, more for loads, taken branches and flash wait states.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from resofire import data, models, train
from resofire.deploy import Simulation, fold, quantize
from resofire.deploy.formats.c import for_each_state, header, input_type

HERE = Path(__file__).resolve().parent
TOOLS = ("arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm")
CPU = ("-mcpu=cortex-m4", "-mthumb")
WARN = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-ffunction-sections", "-fdata-sections")
QEMU = (
    "qemu-system-arm -M mps2-an386 -display none -monitor none -serial none -chardev stdio,id=out "
    "-semihosting-config enable=on,target=native,chardev=out -icount shift=0 -kernel"
)
LOOP = 2_000_000
# An assumption: STM32L412xx (Cortex-M4), data sheet DS12469: 79 µA/MHz in run mode, at 3.0 V 237 pJ per cycle for the
# whole chip with its flash; and one cycle per instruction.
PICOJOULES = 237.0
SCALES_FROM = 64


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="a shipped name, a run folder or a file")
    parser.add_argument("--data", help="data set; by default the one it was trained on")
    parser.add_argument("--samples", type=int, default=5, help="number of test sequences")
    parser.add_argument("--weight-bits", type=int, default=8, choices=(8, 6, 4))
    parser.add_argument("--state-bits", type=int, default=16, choices=(16, 24, 32))
    parser.add_argument("--optimise", default="-O2", choices=("-O1", "-O2", "-O3", "-Os"))
    parser.add_argument("--picojoules", type=float, default=PICOJOULES, help="assumed energy per instruction")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    if options.samples < 1:
        parser.error(f"--samples must be at least 1, got {options.samples}")
    if options.json and (options.json.is_dir() or not options.json.parent.is_dir()):
        parser.error(f"--json must be a file in a folder that exists, got {options.json}")
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        print(
            f"device: skipped, {', '.join(absent)} not found "
            "(Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm)"
        )
        return 0
    try:
        model, task = choose(options.model, options.data)
    except (ValueError, TypeError, data.DataError, train.RunError) as error:
        parser.error(str(error))
    scales = sequences(task, "train", SCALES_FROM, seed=0)[0]
    samples, labels = sequences(task, "test", options.samples)
    quantized = quantize(fold(model), scales, weight_bits=options.weight_bits, state_bits=options.state_bits)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "network.h").write_text(header(quantized, "network"))
        (place / "shape.h").write_text(shape(quantized))
        (place / "samples.h").write_text(arrays(quantized, samples))
        timed, checked = (build(place, options.optimise, check=check) for check in (False, True))
        results = check_and_measure(quantized, samples, labels, run(timed.file), run(checked.file))
    results |= {
        "flash_bytes": timed.network[0], "ram_bytes": timed.network[1], "image_flash_bytes": timed.image[0],
        "image_ram_bytes": timed.image[1], "model": options.model or task.name, "data": task.name,
        "weight_bits": options.weight_bits, "state_bits": options.state_bits, "optimise": options.optimise,
        "picojoules_per_instruction": options.picojoules,
    }  # fmt: skip
    report(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if results["equal"] == results["samples"] else 1


def choose(name, task):
    """The model and its data set."""
    if name is None:
        name = "digits"
        if "smnist" in models.shipped():
            try:
                return choose("smnist", task)
            except data.DataError as error:
                print(f"device: using digits instead of smnist: {error}")
    path = models.find(name)
    model = models.load(path)
    if task:
        return model, data.load(task)
    folder = path.parent if path.is_file() else path
    if not (folder / "run.json").exists():
        raise ValueError(f"--data must be set, because {folder} has no run.json")
    config = train.RunConfig.from_json(train.read(folder)["config"])
    return model, data.load(config.task, **config.task_settings)


def sequences(task, split, count, seed=None):
    """The first sequences of a split as arrays, and their labels."""
    batch = next(task.splits[split].batches(count, seed=seed))
    x = batch.x.numpy()
    if batch.cu_seqlens is None:
        return list(x), batch.labels.numpy()
    bounds = batch.cu_seqlens.numpy()
    return [x[0, a:b] for a, b in pairwise(bounds)], batch.labels.numpy()


def shape(quantized):
    """The sizes and types that the C files need."""
    states = " ".join(for_each_state(quantized, "", "add").split())
    return (
        f"#define STATES {states}\n"
        f"typedef {input_type(quantized)} input_t;\n#define INPUT(x) {'*(x)' if quantized.tokens else '(x)'}\n"
        f"#define INPUTS {1 if quantized.tokens else len(quantized.table)}\n"
        f"#define CLASSES {len(quantized.bias)}\n#define LAYERS {len(quantized.layers)}\n"
    )


def arrays(quantized, samples):
    """The samples as C arrays."""
    codes = np.concatenate([quantized.encode(x).reshape(-1) for x in samples])
    return (
        f"#define SAMPLES {len(samples)}\n"
        f"static const uint32_t lengths[SAMPLES] = {{{', '.join(str(len(x)) for x in samples)}}};\n"
        f"static const input_t samples[{codes.size}] = {{\n{', '.join(map(str, codes))}}};\n"
    )


class Build(NamedTuple):
    """An image, and the bytes of flash and RAM of the network alone and of the whole image."""

    file: Path
    network: tuple[int, int]
    image: tuple[int, int]


def build(place, optimise, check):
    """Compile an image."""
    name = "checked" if check else "timed"
    define = ["-DCHECK"] if check else []
    objects = []
    for source in ("network.c", "main.c", "start.c"):
        objects.append(place / f"{name}-{source[:-2]}.o")
        call("arm-none-eabi-gcc", *CPU, *WARN, optimise, *define, "-I", place, "-I", HERE, "-c", HERE / source,
             "-o", objects[-1])  # fmt: skip
    image = place / f"{name}.elf"
    call("arm-none-eabi-gcc", *CPU, "-nostartfiles", "--specs=nosys.specs", "-Wl,--gc-sections",
         "-T", HERE / "link.ld", *objects, "-o", image)  # fmt: skip
    return Build(image, size(objects[0]), size(image))


def size(file):
    """Bytes of flash and of RAM."""
    text, initial, zero = map(int, call("arm-none-eabi-size", file).splitlines()[1].split()[:3])
    return text + initial, initial + zero


def run(image):
    """The lines of integers that an image prints."""
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


def check_and_measure(quantized, samples, labels, quick, exact):
    """Compare what both images printed with the simulation; count instructions, spikes and correct predictions."""
    simulation, equal, correct, classes = Simulation(quantized), 0, 0, len(quantized.bias)
    for x, label, fast, slow in zip(samples, labels, quick[1:], exact[1:], strict=True):
        result = simulation.run(x)
        # With scores at every step the board prints the last.
        scores = [int(score) % 2**64 for score in np.atleast_2d(result.scores)[-1]]
        counts = [int(fired.sum()) for fired in result.spikes]
        equal += slow[:-1] == [*scores, simulation.digest(x), *counts] and fast[:-1] == [*scores, *counts]
        prediction = np.array(fast[:classes], np.uint64).view(np.int64).argmax()
        correct += int(prediction == np.asarray(label).reshape(-1)[-1])
    steps = sum(map(len, samples))
    # The first line is the ticks of a loop of LOOP instructions; each other line ends with the ticks of its sequence.
    return {
        "samples": len(samples), "equal": equal, "right": correct, "steps": steps,
        "instructions_per_tick": LOOP / quick[0][0],
        "instructions_per_step": sum(line[-1] for line in quick[1:]) * LOOP / quick[0][0] / steps,
        "spikes_per_step": sum(sum(line[classes:-1]) for line in quick[1:]) / steps,
    }  # fmt: skip


def report(results):
    """Add the energy and print everything."""
    energy = results["instructions_per_step"] * results["picojoules_per_instruction"] * 1e-6
    results["microjoules_per_step"] = energy
    results["microjoules_per_sequence"] = energy * results["steps"] / results["samples"]
    r = results
    print(f"{r['model']} on {r['data']}: {r['weight_bits']} bit weights, {r['state_bits']} bit states, {r['optimise']}")
    print(
        f"same bits as the simulation   {r['equal']} of {r['samples']} sequences (spikes, states, scores); "
        f"{r['right']} classified correctly"
    )
    print(f"network: flash, RAM           {r['flash_bytes']:,} and {r['ram_bytes']:,} bytes, without the stack")
    print(
        f"whole image: flash, RAM       {r['image_flash_bytes']:,} and {r['image_ram_bytes']:,} bytes, with the test "
        "sequences"
    )
    print(
        f"instructions per step         {r['instructions_per_step']:,.0f} at {r['spikes_per_step']:.1f} spikes; "
        "counted by QEMU, not cycles"
    )
    print(
        f"energy per step               {energy:.2f} µJ, {r['microjoules_per_sequence'] / 1e3:.2f} mJ per sequence, at "
        f"{r['picojoules_per_instruction']:g} pJ per instruction"
    )


if __name__ == "__main__":
    sys.exit(main())
