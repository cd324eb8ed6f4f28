"""Which process of a distributed run this is, told by the environment before anything is set up."""

import os


def rank() -> int:
    """Among the processes of all machines. torchrun sets RANK; Lightning, which starts those of one, LOCAL_RANK."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0)))


def on_this_machine(devices: int) -> int:
    """How many processes there are on this machine: as torchrun, which has started them, says, or as was asked for."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", devices))


def world(devices: int) -> int:
    """How many processes there are on all machines: as torchrun says, or one for each device."""
    return int(os.environ.get("WORLD_SIZE", devices))
