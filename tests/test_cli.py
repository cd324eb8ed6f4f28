"""The command line as a user meets it: output, exit codes, errors in one sentence."""

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import resofire
from resofire import cli, data
from resofire.commands import COMMANDS, output, stream
from resofire.commands.usage import UsageError

WORDS = ", ".join(COMMANDS)
ROOT = Path(__file__).parents[1]
LONG = "a" * 300


def program(*arguments, code="import sys; from resofire.cli import main; sys.exit(main())", **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **options.pop("environment", {})}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, env=environment, timeout=120, **options
    )


def test_doctor_shows_versions_and_backends(capsys):
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert f"  {'torch':<17}2." in out
    assert f"  {'scan':<17}available" in out
    assert "agree with their reference" in out
    assert cli.main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["works"] is True
    assert facts["backends"]["prf"]["reference"] == "available"


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"resofire {resofire.__version__}\n"


def test_help_names_every_command_and_its_flags(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert all(f"\n  {name} " in text for name in COMMANDS)
    assert max(map(len, text.splitlines())) <= 80
    with pytest.raises(SystemExit, match="0"):
        cli.main(["export", "--help"])
    text = capsys.readouterr().out
    assert "MODEL" in text
    assert "--import MODULE" in text
    assert "None" not in text


USAGE_ERRORS = [
    ([], f"command must be one of {WORDS}; see resofire --help"),
    (["dcotor"], f"command must be one of {WORDS}, got 'dcotor' (did you mean 'doctor'?)"),
    (["doctor", "extra"], "doctor: unexpected argument 'extra'; see resofire doctor --help"),
    (["evaluate"], "evaluate: MODEL is missing: a shipped network or a run folder; see resofire evaluate --help"),
    (["export", "digits"], "export: --to is missing: nir, onnx (whole sequences), onnx-step (one step with its state), c (header and test) or safetensors; see resofire export --help"),
    (["export", "digits", "--samples", "2.5", "--to", "c"], "export: --samples must be an integer, got '2.5'; see resofire export --help"),
    (["bench", "neuron"], "bench: name must be one of neurons, networks, baselines, peers, events, stream, got 'neuron' (did you mean 'neurons'?)"),
    (["evaluate", "digits", "--label", "x"], "evaluate: there is no flag --label; see resofire evaluate --help"),
    (["train", "digit"], "train: there is no recipe 'digit' (did you mean 'digits'?); resofire train --help lists them"),
    (["bench", "--jsn=x"], "bench: there is no flag --jsn (did you mean '--json'?); see resofire bench --help"),
    (["bench", "--json", "."], "bench: --json must name a file, got the folder ."),
    (["bench", "--json", "/dev/null/x/y"], "bench: --json /dev/null/x/y cannot be written: Not a directory"),
    (["bench", "--json", LONG], f"bench: --json {LONG} cannot be written: File name too long"),
    (["bench", "neurons", "--figure", "x"], "bench: --figure is for peers and events, got neurons"),
    (["export", "digits", "--to", "nir", "--out", "/dev/null"], "export: --out /dev/null cannot be written: it exists and is not a regular file"),
    (["measure", "digits", "--out", LONG], f"measure: --out {LONG}/measure.json cannot be written: File name too long"),
    (["data", "shw", "digits"], "data: action must be one of list, prepare, show, got 'shw' (did you mean 'show'?)"),
    (["data", "show", "a/b/c"], f"data: name must be one of {', '.join(data.NAMES)}, got 'a/b/c'"),
    (["data", "show", "--data-dir", "/dev/null", "smnist"], "--data-dir must be a folder, got /dev/null"),
    (["data", "show", "smnist", "--data-dir", "~nobody-of-this-name/x"], "--data-dir must be a folder, got ~nobody-of-this-name/x: Could not determine home directory."),
    (["evaluate", LONG], f"model '{LONG}' cannot be read: File name too long"),
    (["train", "smnist", "--task-settings.shift", "x"], "train: --task-settings.shift must be a number, got 'x'; see resofire train smnist --help"),
    (["train", "digits", "--task-settings.shift", "1"], "train: there is no flag --task-settings.shift; see resofire train digits --help"),
    (["train", "smnist", "--task_settings.shfit=1"], "train: there is no flag --task-settings.shfit (did you mean '--task-settings.shift'?); see resofire train smnist --help"),
    (["train", "pathx-small", "--epochs", "3"], "train: --epochs has no effect with 3000 steps; add --steps None"),
    (["train", "nowhere:make"], "train: nowhere cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
    (["--import"], "--import needs a value: the name of a module, such as package.module"),
    (["doctor", "--import", "nowhere.at_all"], "--import nowhere.at_all cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
    (["paper", "lits"], None),
]  # fmt: skip


def test_a_usage_error_is_one_sentence_and_exits_2(subtests, capsys):
    for arguments, sentence in USAGE_ERRORS:
        with subtests.test(" ".join(arguments)):
            code, captured = cli.main(arguments), capsys.readouterr()
            assert code == 2
            if sentence is None:
                assert captured.err.endswith("got 'lits' (did you mean 'list'?)\n")
            else:
                assert captured.err == f"resofire: {sentence}\n"
            assert captured.out == ""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module into a folder that becomes the current one, and forgets it afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}

    def write(name, text):
        file = tmp_path / f"{name}.py"
        file.write_text(text)
        return file

    yield write
    for name in {*sys.modules} - before:
        if getattr(sys.modules[name], "__file__", None) and Path(sys.modules[name].__file__).parent == tmp_path:
            del sys.modules[name]


def test_import_runs_modules_in_order_before_the_command(module, capsys):
    module("first_of_two", "print('one')")
    module("second_of_two", "print('two')")
    assert cli.main(["--import", "first_of_two", "doctor", "--import=second_of_two", "--json"]) == 0
    assert capsys.readouterr().out.startswith("one\ntwo\n{")


def test_a_module_that_fails_is_one_sentence_with_its_place(module, capsys):
    file = module("broken_module", "x = 1\nx.nothing\n")
    assert cli.main(["doctor", "--import", "broken_module"]) == 2
    assert capsys.readouterr().err == (
        "resofire: --import broken_module cannot be imported: AttributeError: 'int' object has no attribute 'nothing' "
        f"({file}, line 2)\n"
    )


OWN = """
from dataclasses import replace
import numpy as np
from resofire import data
from resofire.recipes import digits

def config():
    return replace(digits(), name="own", steps=4, validate_every=2, model=replace(digits().model, features=8, depth=1))

def pair():
    return config(), replace(data.load("digits"), name="mine")

def wrong():
    return 3

def fails():
    return config().nothing
"""


def test_train_by_a_function(module, capsys, monkeypatch):
    """Its config has flags like a recipe's, and its task is trained on as it is."""
    from resofire import train

    module("own_runs", OWN)
    seen = []

    def record(config, task, folder, *, devices):
        seen.append((config, task, folder))
        raise train.RunError("enough")

    monkeypatch.setattr(train, "train", record)
    assert cli.main(["train", "own_runs:config", "--steps", "6", "--out", "here"]) == 2
    assert cli.main(["train", "own_runs:pair", "--model.features", "16"]) == 2
    assert capsys.readouterr().err == "resofire: enough\n" * 2
    (first, digits, here), (second, mine, there) = seen
    assert (first.steps, first.name, digits.name, here) == (6, "own", "digits", Path("here"))
    assert (second.steps, second.model.features, mine.name, there) == (4, 16, "mine", Path("runs/own"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["own_runs:wrong"], "train: own_runs:wrong must return a RunConfig or a pair (RunConfig, Task), got int"),
        (["own_runs:confg"], "train: own_runs has no function 'confg' (did you mean 'config'?)"),
        (["own_runs:fails"], "train: own_runs:fails failed: AttributeError: 'RunConfig' object has no attribute 'nothing' ({file}, line 17)"),
        (["own_runs:config", "--step", "3"], "train: there is no flag --step (did you mean '--steps'?); see resofire train own_runs:config --help"),
        (["own_runs:pair", "--data-dir", "x"], "train: --data-dir has no effect, own_runs:pair returns its own data"),
    ],
)  # fmt: skip
def test_a_function_that_cannot_be_used(arguments, sentence, module, capsys):
    file = module("own_runs", OWN)
    assert cli.main(["train", *arguments]) == 2
    assert capsys.readouterr().err == f"resofire: {sentence.format(file=file)}\n"


def test_reproduce_is_an_alias_of_paper(capsys):
    for word in ("paper", "reproduce"):
        assert cli.main([word, "list"]) == 0
    first, second = capsys.readouterr().out.split("problem ")[1:]
    assert first == second


def test_bench_prints_ratios_and_writes_json(tmp_path, capsys, monkeypatch):
    """The whole path on sizes that take a moment."""
    from benchmarks import neurons

    monkeypatch.setattr(neurons, "SHAPES", [(2, 64, 32), (2, 32, 32)])
    monkeypatch.setattr(neurons, "against_loops", lambda table, shape, rounds: None)
    for name in ("against_peers", "every_neuron"):
        monkeypatch.setattr(neurons.compiled, name, lambda table, *rounds, **more: None)
    monkeypatch.setattr("resofire.ops.retain_buffers", lambda: True)
    file = tmp_path / "deep" / "neurons.json"
    assert cli.main(["bench", "neurons", "--quick", "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    assert result["command"] == "resofire bench neurons --quick"
    names = [row["name"] for row in result["figures"]]
    assert "PRF scan over fft at 2x64x32" in names
    assert all(row["value"] > 0 for row in result["figures"])
    assert "PRF scan over fft at 2x64x32" in capsys.readouterr().out


def test_bench_without_a_clone_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("resofire.clone.ROOT", tmp_path)
    monkeypatch.setattr("resofire.ops.retain_buffers", lambda: True)
    assert cli.main(["bench", "neurons"]) == 2
    assert capsys.readouterr().err == (
        f"resofire: bench: benchmarks need a clone of the repository; {tmp_path}/resofire is installed without one\n"
    )


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    monkeypatch.setenv("RESOFIRE_CACHE", str(tmp_path / "cache"))
    data.load("digits")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_data_lists_every_set(capsys):
    assert cli.main(["data", "list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in data.NAMES)


def test_data_shows_the_embedded_set(prepared, capsys):
    assert cli.main(["data", "show", "digits"]) == 0
    printed = capsys.readouterr().out
    assert "digits: values in 1 channel(s), 10 classes" in printed
    assert printed.endswith("samples drawn in digits.png\n")
    assert (prepared / "digits.png").read_bytes()[1:4] == b"PNG"
    assert cli.main(["data", "show", "digits", "--png", "new/digits.png"]) == 0
    assert (prepared / "new" / "digits.png").read_bytes()[1:4] == b"PNG"
    capsys.readouterr()
    assert cli.main(["data", "prepare", "digits", "--json"]) == 0
    assert sum(split["size"] for split in json.loads(capsys.readouterr().out)["splits"].values()) == 1797


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["data", "show", "digits", "--png", "x.png"], "data: --png x.png"),
        (["measure", "digits", "--batches", "1", "--out", "."], "measure: --out ."),
        (["measure", "paper", "--out", "."], "measure: --out ."),
        (["export", "digits", "--to", "safetensors", "--samples", "1", "--out", "x"], "export: x"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_full_disk_is_one_sentence_and_leaves_nothing(arguments, flag, prepared, capsys, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert cli.main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"resofire: {flag} ")
    assert err.endswith(" be written: No space left on device\n")
    assert err.count("\n") == 1
    assert not list(prepared.iterdir())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["data", "list"]], ids=" ".join)
def test_output_that_cannot_be_written_is_one_sentence(arguments):
    with open("/dev/full", "w") as full:
        done = program(*arguments, stdout=full)
    assert done.returncode == 1
    assert done.stderr == b"resofire: standard output cannot be written: No space left on device\n"


def test_a_reader_that_has_enough_ends_it_quietly():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        done = program("data", "list", stdout=closed)
    assert done.returncode == 1
    assert done.stderr == b""


def test_a_terminal_of_plain_letters_does_not_crash():
    done = program("paper", "list", stdout=subprocess.PIPE, environment={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert b"resonates at \\u03b8" in done.stdout


def test_stream_without_standard_input_is_one_sentence():
    code = (
        "import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, '-m', 'resofire.cli', *sys.argv[1:]])"
    )
    done = program("stream", "digits", code=code, stdout=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == b"resofire: stream: standard input is closed; name a file\n"


class Counted(list):
    """A list that counts the elements copied out of it."""

    copied = 0

    def __getitem__(self, key):
        part = super().__getitem__(key)
        Counted.copied += len(part) if isinstance(key, slice) else 1
        return part


@pytest.mark.parametrize("at_once", [True, False], ids=["line by line", "file"])
def test_chunks_of_a_long_line_take_linear_work(at_once):
    lines = [Counted(range(5)), Counted(range(5, 100_003)), Counted(), Counted(range(100_003, 100_020))]
    Counted.copied = 0
    chunks = [list(chunk) for chunk in stream.chunked(lines, 7, at_once=at_once)]
    assert [step for chunk in chunks for step in chunk] == [*range(100_020)]
    assert max(map(len, chunks)) == 7
    assert Counted.copied <= 100_020
    assert sum(len(chunk) < 7 for chunk in chunks) <= (3 if at_once else 1)


def test_tables_wrap_in_a_narrow_terminal_and_never_outside_one(monkeypatch, capsys):
    rows = [("first", "word " * 30), ("second", "x")]
    output.print_table(rows)
    assert capsys.readouterr().out.splitlines() == [f"first   {('word ' * 30).rstrip()}", "second  x"]
    monkeypatch.setattr("sys.stdout", terminal := io.StringIO())
    terminal.isatty = lambda: True
    monkeypatch.setenv("COLUMNS", "40")
    output.print_table(rows)
    plain = re.sub(r"\x1b\[\d*m", "", terminal.getvalue())
    assert max(map(len, plain.splitlines())) <= 40


@pytest.mark.parametrize("moment", [0.0, 0.4, 1.0])
def test_an_early_interrupt_has_no_traceback(moment, tmp_path):
    """Whatever is being imported then. What Python loads before the program is not ours."""
    code = "import sys; from resofire.cli import main; print(flush=True); sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", code, "train", "digits", "--out", str(tmp_path / "run")], cwd=ROOT,
        stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        # A shell starts background jobs with SIGINT ignored, which the tests would inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:  # fmt: skip
        process.stdout.readline()
        time.sleep(moment)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert b"Traceback" not in err
    assert process.returncode == 130


def test_an_error_of_the_system_is_one_sentence(monkeypatch, capsys):
    def denied(self):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "somewhere")

    monkeypatch.setattr(COMMANDS["doctor"], "run", denied)
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().err == "resofire: somewhere: Permission denied\n"


def test_a_missing_package_names_its_extra(monkeypatch, capsys):
    def missing(self):
        raise ModuleNotFoundError("No module named 'onnx'", name="onnx")

    monkeypatch.setattr(COMMANDS["doctor"], "run", missing)
    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == "resofire: onnx is not installed: pip install 'resofire[export]'\n"


def test_a_suggestion_only_where_there_is_one():
    from resofire.commands.usage import require_one_of

    with pytest.raises(UsageError, match=r"must be one of a, b, got 'xyz'$"):
        require_one_of("it", "xyz", ("a", "b"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"])
def test_a_signal_inside_a_destructor_is_not_lost(number, code, monkeypatch, capsys):
    """Python prints what is raised there, and forgets it."""

    class Library:
        def __del__(self):
            signal.raise_signal(number)

    def run(self):
        Library()
        time.sleep(10)
        raise AssertionError("it went on")

    monkeypatch.setattr(COMMANDS["doctor"], "run", run)
    # A shell starts what runs in the background with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ended = cli.main(["doctor"])
    except SystemExit as stopped:
        ended = stopped.code
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_long_word_is_not_repeated_whole(capsys):
    assert cli.main(["x" * 100_000]) == 2
    assert len(capsys.readouterr().err) < 2_000
