#!/usr/bin/env python3
"""Runs a test program, ends a test that takes too long, and prints the slowest tests: limit.py PROGRAM ARGUMENTS...

`make test` has cargo start every test program with this script.

- SHUNT_TEST_MINUTES is the limit for one test, in minutes (default 15). If a test exceeds it, the script names the test, kills the
  program with its children, deletes the network namespaces that it made, and exits with 124.
- The programs in BOUNDED have tests with bounds on the time, which hold on a machine without other load. Their tests run beside each
  other like all others, which takes half the time; those that fail run again one at a time, and that result counts.
- After a program that took more than 30 seconds, the ten slowest tests are printed.
- With SHUNT_RETRY=1, up to three tests of a program that failed run once more, alone. If they pass then, the program has passed, and
  they are named as flaky: each is a fault, of the test or of what it tests.
"""

import os
import re
import select
import signal
import subprocess
import sys
import time

LIMIT_S = 60 * float(os.environ.get("SHUNT_TEST_MINUTES", "15"))
# Test programs with bounds on the time.
BOUNDED = {"reaction"}
# With more failed tests than this, none runs again: of a bounded program, and of any with SHUNT_RETRY=1.
BOUNDS_BROKEN = 10
RETRIED = 3
# How many tests to print, and after which running time of the program.
SLOWEST = 10
SLOWEST_AFTER_S = 30
# The lines of libtest for a test that runs for long, for one that has ended, and in `--list`.
SLOW = re.compile(rb"^test (\S+).* has been running for over (\d+) seconds")
ENDED = re.compile(rb"^test (\S+) .*\.\.\. ")
LISTED = re.compile(rb"^(\S+): test$", re.MULTILINE)
# In the list at the end.
FAILED = re.compile(rb"^    (\S+)$")


def name_of(program):
    """The test target's name: cargo appends a hash to it."""
    return re.sub(r"-[0-9a-f]{16}$", "", os.path.basename(program))


def is_test_program(program):
    return name_of(program) != os.path.basename(program)


class Clock:
    """Durations of tests. libtest does not print when a test starts, but starts tests in the order of --list, one for each thread."""

    def __init__(self, command):
        self.durations, self.waiting, self.started = {}, [], {}
        if not is_test_program(command[0]):
            return
        listed = subprocess.run([*command, "--list"], capture_output=True)
        self.waiting = [name.decode() for name in LISTED.findall(listed.stdout)]
        threads = os.environ.get("RUST_TEST_THREADS") or len(os.sched_getaffinity(0))
        for at, word in enumerate(command):
            if word.startswith("--test-threads"):
                threads = word.partition("=")[2] or command[at + 1]
        self.start(int(threads))

    def start(self, count=1):
        for _ in range(min(count, len(self.waiting))):
            self.started[self.waiting.pop(0)] = time.monotonic()

    def end(self, name):
        if name in self.started:
            self.durations[name] = time.monotonic() - self.started.pop(name)
            self.start()

    def print_slowest(self, program, seconds):
        if seconds < SLOWEST_AFTER_S or not self.durations:
            return
        slowest = sorted(self.durations.items(), key=lambda item: -item[1])[:SLOWEST]
        print(f"{name_of(program)}: {seconds:.0f} s; slowest tests:", file=sys.stderr)
        for name, duration in slowest:
            print(f"  {duration:6.1f} s  {name}", file=sys.stderr)


def processes_in(namespace):
    return [int(pid) for pid in subprocess.run(["ip", "netns", "pids", namespace], capture_output=True).stdout.split()]


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def descendants(pid):
    """All processes that descend from this one."""
    try:
        found = [int(word) for task in os.listdir(f"/proc/{pid}/task") for word in open(f"/proc/{pid}/task/{task}/children").read().split()]
    except OSError:
        return []
    return found + [process for child in found for process in descendants(child)]


def clean_up(program):
    started = descendants(program.pid)
    program.kill()
    program.wait()
    for pid in started:
        kill(pid)
    names = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
    for name in names:
        # Named shunt-LABEL-PID-NUMBER by crates/shunt-lab/src/net/netns.rs.
        if re.fullmatch(rf"shunt-.*-{program.pid}-\d+", name):
            for pid in processes_in(name):
                kill(pid)
            subprocess.run(["ip", "netns", "del", name])


def run(command):
    """The exit code, and the tests that failed."""
    clock = Clock(command)
    began = time.monotonic()
    program = subprocess.Popen(command, stdout=subprocess.PIPE)
    running, failed, partial, heard = {}, [], b"", time.monotonic()
    while True:
        ready, _, _ = select.select([program.stdout], [], [], 1)
        now = time.monotonic()
        if ready:
            data = os.read(program.stdout.fileno(), 65536)
            if not data:
                break
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            heard = now
            *lines, partial = (partial + data).split(b"\n")
            for line in lines:
                if slow := SLOW.match(line):
                    running.setdefault(slow[1].decode(), now - int(slow[2]))
                elif ended := ENDED.match(line):
                    running.pop(ended[1].decode(), None)
                    clock.end(ended[1].decode())
                elif line == b"failures:":
                    failed = []
                elif name := FAILED.match(line):
                    failed.append(name[1].decode())
        late = [name for name, since in running.items() if now - since > LIMIT_S]
        # When tests run one at a time, libtest does not print which test is slow.
        if not late and now - heard > LIMIT_S:
            late = list(running) or [partial.decode(errors="replace").strip() or "a test"]
        if late:
            clean_up(program)
            minutes = f"{LIMIT_S / 60:g} minutes"
            print(f"\n{command[0]}: killed; longer than {minutes} (SHUNT_TEST_MINUTES): {', '.join(late)}", file=sys.stderr)
            return 124, []
    code = program.wait()
    clock.print_slowest(command[0], time.monotonic() - began)
    return (code if code >= 0 else 128 - code), failed


def main():
    command = sys.argv[1:]
    if not is_test_program(command[0]):
        return run(command)[0]
    code, failed = run(command)
    if name_of(command[0]) in BOUNDED and 0 < len(failed) <= BOUNDS_BROKEN:
        print(f"failed beside other tests; again, one at a time: {', '.join(failed)}", file=sys.stderr)
        code, failed = run([command[0], "--test-threads=1", "--exact", *failed])
    if code == 0 or os.environ.get("SHUNT_RETRY") != "1" or not 0 < len(failed) <= RETRIED:
        return code
    again, _ = run([command[0], "--test-threads=1", "--exact", *failed])
    if again == 0:
        print(f"FLAKY: failed, and passed when run again: {', '.join(failed)}", file=sys.stderr)
    return again


try:
    sys.exit(main())
except KeyboardInterrupt:
    # The program has got the Ctrl-C, too.
    sys.exit(130)
