"""`fbprof timing`: needs no engine, but the installed program."""

from __future__ import annotations

import re
import subprocess

import pytest

import firebird_env as env


def timing(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([env.FBPROF, 'timing', *arguments], capture_output=True, text=True, timeout=env.PATIENCE)


def test_all_clocks():
    done = timing('--duration', '0.5')
    assert (done.returncode, done.stderr) == (0, '')
    assert re.match(r'fbprof measures with (the processor\'s counter|the system\'s clock, CLOCK_MONOTONIC_RAW): .*\.\n',
                    done.stdout)
    rows = {name: (read, steps, backward)
            for read, steps, backward, name in re.findall(
                r'^ *([\d.]+) [nµm]?s .* (\d+) +(\d+)  ([a-z-]+) ', done.stdout, re.MULTILINE)}
    assert {'tick-clock', 'tick-clock-ordered', 'raw', 'monotonic', 'coarse', 'cpu'} <= rows.keys()
    for name, (read, steps, backward) in rows.items():
        assert (float(read) > 0, int(steps) > 0, int(backward)) == (True, True, 0), name
    for name in rows:
        assert f'\nFrom one read of {name} to the next:\n' in done.stdout


@pytest.mark.parametrize('clock', ['tick-clock', 'raw'])
def test_histogram_adds_up(clock):
    """The rows of the histogram are all steps, and the running share ends at 100 %."""
    done = timing('-d', '0.2', '-c', clock)
    assert (done.returncode, done.stderr) == (0, '')
    assert done.stdout.count('From one read of') == 1
    steps = int(re.search(rf'(\d+) +0 +{clock} ', done.stdout)[1])
    rows = re.findall(r'^ *([\d.]+) +([\d.]+) +(\d+)  below \d+ ns$', done.stdout, re.MULTILINE)
    assert sum(int(count) for _, _, count in rows) == steps
    assert rows[-1][1] == '100.0000'


@pytest.mark.parametrize('arguments', [
    ['--duration', '0'],
    ['--duration', '-1'],
    ['--duration', 'nan'],
    ['--duration', '3601'],
    ['--duration', 'long'],
    ['--clock', 'sundial'],
    ['--all'],
    ['some.fbprof'],
])
def test_misuse(arguments):
    done = timing(*arguments)
    assert (done.returncode, done.stdout) == (2, '')
    assert re.fullmatch(r'fbprof: .*: see fbprof timing --help\n', done.stderr)


def test_help():
    done = timing('--help')
    assert (done.returncode, done.stderr) == (0, '')
    assert '--duration' in done.stdout and 'LOG' not in done.stdout
    commands = subprocess.run([env.FBPROF, 'help'], capture_output=True, text=True, check=True).stdout
    assert re.search(r'^  timing +Show ', commands, re.MULTILINE)


def test_full_disk():
    with open('/dev/full', 'w') as full:
        done = subprocess.run([env.FBPROF, 'timing', '-d', '0.1'], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith('fbprof: stdout: cannot be written: ')
