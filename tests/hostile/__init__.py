"""Attacks on the library: damaged files, killed processes, full disks, wrong command lines.

    python -m tests.hostile --minutes 30
    python -m tests.hostile --only files/text-tar --first 417 --cases 1     # one case again, by its number

A scenario does one kind of attack, as often as its budget allows; each case depends only on the seed and its number. A
file of this package that registers scenarios is named in `SOURCES`, in `__main__.py`.
"""
