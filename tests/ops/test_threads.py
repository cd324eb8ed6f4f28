"""Sharing out work: everything is done once, exceptions come back, and every runtime gives the same."""

import multiprocessing
import threading

import pytest
import torch

from resofire.ops import lif
from resofire.ops.neuron_scan import threads


@pytest.fixture(params=["openmp", "pool"])
def runtime(request, monkeypatch):
    if request.param == "pool":
        monkeypatch.setattr(threads, "_openmp", lambda: None)
    elif threads._openmp() is None:
        pytest.skip("torch does not come with GNU's OpenMP here")
    return request.param


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_share_is_done_once(runtime, count):
    done, lock = [], threading.Lock()

    def run(share):
        with lock:
            done.append(share)

    threads.share_out(run, range(50), count)
    assert sorted(done) == list(range(50))


def test_an_exception_is_raised_again(runtime):
    def run(share):
        if share == 3:
            raise KeyError("three")

    with pytest.raises(KeyError, match="three"):
        threads.share_out(run, range(8), 2)
    threads.share_out(lambda share: None, range(8), 2)


def test_neurons_give_the_same_on_each(runtime):
    x = torch.randn(4, 3000, 40)
    expected = lif(x, 0.9)[0]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert torch.equal(lif(x, 0.9)[0], expected)
    finally:
        torch.set_num_threads(before)


def _in_child(queue, x):
    torch.set_num_threads(1)
    queue.put(lif(x, 0.9)[0].sum().item())


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_worker_can_run_neurons():
    """As torch's data loader does it: the child of a process that has used threads, itself on one thread."""
    x = torch.randn(4, 3000, 40)
    expected = lif(x, 0.9)[0].sum().item()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue, x))
    child.start()
    assert queue.get(timeout=60) == expected
    child.join(60)
    assert child.exitcode == 0
