"""A vibration sensor with a fault, from a csv file to C code that a microcontroller runs. One page, no tuning.

    python -m examples.sensor                          # writes sensor/machines.csv, trains, exports
    resofire fit sensor/machines.csv --minutes 1       # the same from the command line
    resofire export runs/machines --to c --out machines-c

Each line of the file is one recording: its state, then 400 raw readings in milli-g around the sensor's offset. A worn
bearing knocks some times in each turn of the shaft, buried in noise. The network standardises readings itself, so raw
ones go into the C code as well, and it decides after every reading.
"""

import argparse
from pathlib import Path

import numpy as np

import resofire
from resofire import automatic, data, deploy, train

STATES = ("worn", "healthy")
STEPS, OFFSET = 400, 1_013.0


def recording(worn: bool, random: np.random.Generator) -> np.ndarray:
    """Readings of one machine, [STEPS]: a turning shaft, noise and, if the bearing is worn, decaying knocks."""
    time = np.arange(STEPS)
    signal = 30 * np.sin(2 * np.pi * time / random.uniform(45, 60) + random.uniform(0, 6)) + random.normal(0, 8, STEPS)
    if worn:
        for knock in np.arange(random.uniform(0, 35), STEPS, random.uniform(32, 38)):
            since = time - knock
            signal += np.where(since >= 0, 40 * np.exp(-np.abs(since) / 4) * np.sin(1.9 * since), 0)
    return OFFSET + signal


def write_csv(file: Path, count: int, seed: int = 0) -> None:
    """Write recordings, one in each line, the state first."""
    random = np.random.default_rng(seed)
    lines = ["state," + ",".join(f"t{step}" for step in range(STEPS))]
    for number in range(count):
        values = recording(number % 2 == 0, random)
        lines.append(",".join([STATES[number % 2], *(f"{value:.1f}" for value in values)]))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n")


def main(folder: Path, minutes: float = 1.0, count: int = 400, epochs: int | None = None) -> float:
    """Write the file, train on it, stream one recording and export the network to C; returns the test accuracy."""
    file = folder / "machines.csv"
    write_csv(file, count)
    task = data.from_path(file, label="state", test=0.25, validation=None)
    config = automatic.choose(task, minutes=minutes, epochs=epochs)
    outcome = train.train(config, task, folder / "run")
    assert outcome.result is not None
    print(train.report(*outcome))

    model = resofire.load(folder / "run")
    stream = deploy.Stream(model)
    names = task.class_names or ()
    for reading in recording(True, np.random.default_rng(1)):
        scores = stream.step([[reading]])  # raw, one reading at a time
    print(f"a worn machine, streamed: {names[scores[0].argmax()]}")

    samples = [task["train"].batch(np.array([number])).x[0].numpy() for number in range(32)]
    written = deploy.export(model, "c", folder / "machines-c", samples)
    print(f"{written['file']}: {written['bytes']:,} bytes, fixed point agrees on {100 * written['agreement']:.0f} %")
    return float(outcome.result["accuracy"]["test"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("sensor"))
    parser.add_argument("--minutes", type=float, default=1.0)
    arguments = parser.parse_args()
    main(arguments.folder, arguments.minutes)
