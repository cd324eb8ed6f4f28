"""The training command on a small run."""

from resofire import cli

TINY = (
    "--steps", "8", "--validate-every", "4", "--model.features", "8", "--model.depth", "1", "--batch", "50",
    "--checkpoint-minutes", "0",
)  # fmt: skip
STEPS = 8


def begin(folder, *flags):
    return cli.main(["train", "digits", *TINY, "--out", str(folder), *flags])


def go_on(folder):
    return cli.main(["train", "--resume", str(folder)])


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def last_line(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert "Lightning" not in captured.err
    return captured.err.splitlines()[-1]


def at(monkeypatch, owner, name, count, action):
    """Do something before the count-th call of a function, then call it."""
    real, calls = getattr(owner, name), []

    def counted(*arguments, **named):
        calls.append(None)
        if len(calls) == count:
            action()
        return real(*arguments, **named)

    monkeypatch.setattr(owner, name, counted)
