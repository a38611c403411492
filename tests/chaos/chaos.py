# SPDX-License-Identifier: BSD-2-Clause
"""What is installed, with processes killed and stopped, disks full and little
memory that can be locked; looked at from outside.

    chaos.py PREFIX --package FOLDER --minutes N [--seed N] [--only SCENE]
             [--mpi-program FILE] [--cuda-program FILE --cuda-driver FOLDER]

A round is a scene of two to eight processes, drawn by the seed, that are
stopped for a while or killed at random moments. Then: a process that was not
killed ends by itself, in bounded time, with the exit status that fits, so with
right bytes, which the programs compare; none has pinned more than its budget;
no process and no file in /dev/shm is left. The first round that breaks this
ends the run, with its seed and all that its processes have said.
"""

import argparse
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE_S = 240
MARK = "CHAOS_ROUND"  # in the environment of a round's processes


class Wrong(Exception):
    """An invariant that does not hold."""


class Process:
    """A command, and what may come of it."""

    def __init__(self, scene, words, env=None, **limits):
        self.words, self.killed = words, False
        self.log = scene.folder / f"log.{len(scene.processes)}"
        self.budget = int((env or {}).get("PINION_MAX_BYTES", 0))
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(
                words, env={**scene.env, **(env or {})}, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL,
                preexec_fn=lambda: limit(**limits) if limits else None)
        scene.processes.append(self)

    @property
    def runs(self):
        return self.child.poll() is None

    def kill(self):
        self.killed = True
        self.child.kill()

    def look(self):
        """The kernel knows what is pinned."""
        if self.budget and pinned(self.child.pid) > self.budget:
            raise Wrong(f"{self.words}: pins {pinned(self.child.pid)} of "
                        f"{self.budget}")

    def end(self, until):
        try:
            return self.child.wait(max(0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Wrong(f"{self.words}, process {self.child.pid}, hangs") \
                from None


def limit(memlock=None, user=None):
    if memlock is not None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (memlock, memlock))
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)


def pinned(pid):
    try:
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0  # it has just ended
    return sum(int(line.split()[1]) << 10 for line in lines
               if line.startswith("VmPin"))


def state(pid):
    """T: stopped; X: gone."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "X"
    return stat.rpartition(")")[2].split()[0]


def program_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None  # it has just ended


def listens(port):
    return any(line.split()[1].endswith(f":{port:04X}") and
               line.split()[3] == "0A"
               for name in ("tcp", "tcp6")
               for line in pathlib.Path("/proc/net", name)
               .read_text().splitlines()[1:])


def marked(mark):
    """Processes of a round, by the environment that they have inherited."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in \
                    (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            pass
    return found


class Scene:
    def __init__(self, options, seed):
        self.options, self.seed = options, seed
        self.rng = random.Random(seed)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="chaos."))
        self.folder.chmod(0o777)
        self.processes = []
        prefix = options.prefix
        self.env = {
            "PATH": f"{prefix}/bin:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "LD_LIBRARY_PATH": f"{prefix}/lib",
            "PYTHONPATH": str(options.package),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            MARK: str(seed)}
        self.stopped = {}  # process: until when
        self.ndied = 0

    # --- what is done to them ----------------------------------------------

    def victims(self):
        """Process ids that may be stopped and killed."""
        return [p.child.pid for p in self.processes if p.runs]

    def stop(self, pid):
        longest = self.rng.choice([0.01, 0.1, 0.5, 3])
        self.stopped[pid] = time.monotonic() + self.rng.uniform(0, longest)
        self.send(pid, signal.SIGSTOP)

    @staticmethod
    def send(pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def go_on(self, until=None):
        for pid, end in list(self.stopped.items()):
            if end <= (until or time.monotonic()):
                self.send(pid, signal.SIGCONT)
                del self.stopped[pid]

    def kill(self, pid):
        """False: it has ended by itself. What is stopped does not."""
        self.send(pid, signal.SIGSTOP)
        while state(pid) not in "TtZX":
            time.sleep(0.001)
        if state(pid) in "ZX":
            return False
        for process in self.processes:
            if process.child.pid == pid:
                process.killed = True
        self.send(pid, signal.SIGKILL)
        return True

    def harass(self, seconds, kills, stops=True):
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(p.runs for p in self.processes):
            time.sleep(self.rng.uniform(0.001, 0.2))
            for process in self.processes:
                process.look()
            self.go_on()
            victims = [pid for pid in self.victims()
                       if pid not in self.stopped]
            if not victims:
                continue
            pid = self.rng.choice(victims)
            if self.ndied < kills and self.rng.random() < 0.15:
                self.ndied += self.kill(pid)
            elif stops and self.rng.random() < 0.3:
                self.stop(pid)
        self.go_on(float("inf"))
        return self.ndied

    # --- what must hold ----------------------------------------------------

    def statuses(self):
        """Of all processes; those that were killed have None."""
        until = time.monotonic() + PATIENCE_S
        statuses = [p.end(until) for p in self.processes]
        return [None if p.killed else status
                for p, status in zip(self.processes, statuses)]

    def all_end_well(self):
        for process, status in zip(self.processes, self.statuses()):
            if status not in (0, None):
                raise Wrong(f"{process.words}: exit status {status}")

    def end(self):
        """Nothing is left."""
        until = time.monotonic() + PATIENCE_S
        while marked(self.seed):
            if time.monotonic() > until:
                raise Wrong(f"processes are left: {marked(self.seed)}")
            time.sleep(0.02)
        # Removes the counters that killed processes have left.
        subprocess.run([f"{self.options.prefix}/bin/pinion", "stat"],
                       env=self.env, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, timeout=PATIENCE_S,
                       check=False)
        if not self.options.own_shm:
            return
        left = [p for p in pathlib.Path("/dev/shm").rglob("*")
                if not p.is_dir() and not self.may_stay(p)]
        if left:
            raise Wrong(f"left in /dev/shm: {left}")

    def may_stay(self, path):
        # The registry of helpers. Of other users' processes the next one of
        # theirs removes what was left.
        return path.name.startswith("pinion-helpers-") or \
            path.stat().st_uid != os.getuid()

    def clear(self):
        self.go_on(float("inf"))
        for pid in marked(self.seed):
            self.send(pid, signal.SIGKILL)
        for process in self.processes:
            process.child.wait()

    def logs(self):
        for process in self.processes:
            said = process.log.read_text(errors="replace")
            print(f"--- {process.words}\n{said[-3000:]}")


# --- scenes -----------------------------------------------------------------

def start_talk(scene, env=None, seconds=3, **limits):
    n = scene.rng.randint(2, 8)
    folder = scene.folder / "told"
    folder.mkdir()
    folder.chmod(0o777)
    for number in range(n):
        Process(scene, [sys.executable, str(HERE / "talk.py"), str(number),
                        str(n), str(folder), str(seconds),
                        str(scene.seed % 1000)], env, **limits)
    return n


def python(scene):
    """Processes of the Python package that all talk to all."""
    env = {"PINION_MAX_BYTES": str(scene.rng.choice([3, 16]) << 20),
           "PINION_DEVICE": scene.rng.choice(["soft", "soft", "soft+soft",
                                              "soft:mode=mlock"]),
           "PINION_PROGRESS": scene.rng.choice(["caller", "thread"]),
           "PINION_HELPER": scene.rng.choice(["off", "off", "auto"])}
    n = start_talk(scene, env)
    scene.harass(4, scene.rng.randint(0, n - 1))
    scene.all_end_well()


def python_fabric(scene):
    """The same over the network."""
    env = {"PINION_DEVICE": "fabric:tcp,patience=20s"}
    n = start_talk(scene, env)
    scene.harass(4, scene.rng.randint(0, n - 1))
    scene.all_end_well()


def may_read(user, path):
    return not subprocess.run(["test", "-r", str(path)], check=False,
                              preexec_fn=lambda: limit(user=user)).returncode


def little_memlock(scene):
    """The same as a user who may lock next to nothing."""
    if os.geteuid():
        return
    lockable = scene.rng.choice([0, 4, 16, 64, 256, 1024, 8192]) << 10
    user = 30000 + scene.seed % 10000
    if not all(may_read(user, path) for path in
               (HERE / "talk.py", scene.options.prefix / "bin" / "pinion")):
        return
    n = start_talk(scene, None, memlock=lockable, user=user)
    scene.harass(3, scene.rng.randint(0, n - 1))
    scene.all_end_well()


def full_disk(scene):
    """Traces end where the disk does. The programs go on, and what there is of
    a trace can be read, or is refused with an error."""
    disk = scene.folder / "disk"
    disk.mkdir()
    size = scene.rng.choice([4, 16, 64, 256])
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none",
                       str(disk)], check=False, capture_output=True).returncode:
        return
    try:
        env = {"PINION_TRACE": f"{disk}/trace.%p"}
        start_talk(scene, env, seconds=2)
        scene.harass(3, 1)
        scene.all_end_well()
        for trace in disk.iterdir():
            done = subprocess.run(
                [f"{scene.options.prefix}/bin/pinion", "trace", "stat",
                 str(trace)], env=scene.env, capture_output=True,
                timeout=PATIENCE_S, check=False)
            if done.returncode not in (0, 1):
                raise Wrong(f"pinion trace stat {trace}: {done.returncode}")
    finally:
        scene.clear()
        subprocess.run(["umount", str(disk)], check=False)


def bench(scene):
    """The command measures between two processes, one of which is its child."""
    what = scene.rng.choice([["message", "--bytes", "8,64K,1M"],
                             ["raw", "--max", "1M"]])
    Process(scene, ["pinion", "bench", *what, "--budget", "3s", "--json"])
    scene.victims = lambda: marked(scene.seed)
    killed = scene.harass(2, scene.rng.randint(0, 1))
    status = scene.statuses()[0]
    if status is not None and status < 0 or not killed and status:
        raise Wrong(f"pinion bench: exit status {status}, {killed} killed")


def ping_pong(scene, words, provider, how):
    """libfabric's own program, which compares what it gets, as pairs."""
    for pair in range(scene.rng.randint(1, 4)):
        port = 20000 + (scene.seed * 7 + pair) % 10000
        common = [*words, "fi_pingpong", "-p", provider, "-e", "rdm", "-c",
                  *how]
        server = Process(scene, [*common, "-B", str(port)])
        while server.runs and not listens(port):
            time.sleep(0.01)
        Process(scene, [*common, "-P", str(port), "127.0.0.1"])
    # Its control connection ends when it is stopped (EINTR).
    scene.harass(4, scene.rng.randint(0, 1), stops=False)
    # A program whose partner is gone waits for ever by itself; libfabric's
    # tells an error only to those that ask.
    pairs = list(zip(scene.processes[::2], scene.processes[1::2]))
    for pair in pairs:
        if any(p.killed for p in pair):
            for process in pair:
                process.kill()
    scene.all_end_well()


def provider(scene):
    scene.env["FI_PROVIDER_PATH"] = f"{scene.options.prefix}/lib/libfabric"
    scene.env["FI_PROVIDER"] = "pinion"
    ping_pong(scene, [], "pinion", ["-m", "tagged", "-I", "50", "-S", "all"])


def hook(scene):
    """The same, unmodified, over the provider tcp under `pinion run`."""
    ping_pong(scene, ["pinion", "run"], "tcp",
              ["-m", scene.rng.choice(["tagged", "msg"]), "-I", "500",
               "-S", scene.rng.choice(["64", "9000", "65536"])])


def mpi(scene):
    """A job one of whose ranks dies ends, and ends with an error."""
    n = scene.rng.randint(2, 6)
    program = os.path.realpath(scene.options.mpi_program)
    Process(scene, ["pinion", "mpirun", "--oversubscribe", "-n", str(n),
                    program])
    scene.victims = lambda: [pid for pid in marked(scene.seed)
                             if program_of(pid) == program]
    killed = scene.harass(4, scene.rng.randint(0, 1))
    status = scene.statuses()[0]
    if bool(status) != bool(killed):
        raise Wrong(f"pinion mpirun: exit status {status}, {killed} killed")


def cuda(scene):
    """Unmodified CUDA programs over the stand-in of a driver."""
    env = {"LD_LIBRARY_PATH": f"{scene.options.cuda_driver}:"
                              f"{scene.options.prefix}/lib",
           "STANDIN_OPTIONS": "devices=2"}
    for _ in range(scene.rng.randint(2, 4)):
        Process(scene, ["pinion", "run", scene.options.cuda_program,
                        "linked"], env)
    scene.harass(2, 1)
    scene.all_end_well()


def chosen(options):
    scenes = [python, python, python_fabric, little_memlock, full_disk, bench,
              provider, hook]
    if not shutil.which("fi_pingpong"):
        scenes = [s for s in scenes if s not in (provider, hook)]
    if options.mpi_program and shutil.which("mpirun.openmpi"):
        scenes.append(mpi)
    if options.cuda_program:
        scenes.append(cuda)
    if options.only:
        scenes = [s for s in scenes if s.__name__ == options.only]
    return scenes


def play(options, seed, counts):
    scene = Scene(options, seed)
    what = scene.rng.choice(chosen(options))
    begin = time.monotonic()
    try:
        what(scene)
        scene.end()
    except Wrong as wrong:
        print(f"FAILED: {what.__name__}, --seed {seed} --rounds 1: {wrong}")
        scene.logs()
        return False
    finally:
        scene.clear()
        shutil.rmtree(scene.folder, ignore_errors=True)
    of = counts.setdefault(what.__name__, [0, 0, 0])
    of[0] += 1
    of[1] += len(scene.processes)
    of[2] += scene.ndied
    print(f"{what.__name__}: {len(scene.processes)} processes, "
          f"{time.monotonic() - begin:.1f} s, seed {seed}", flush=True)
    return True


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("prefix", type=pathlib.Path)
    parser.add_argument("--package", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--seed", type=int,
                        default=int(os.environ.get("PINION_TEST_SEED", 0)))
    parser.add_argument("--only")
    parser.add_argument("--mpi-program")
    parser.add_argument("--cuda-program")
    parser.add_argument("--cuda-driver")
    options = parser.parse_args()
    options.own_shm = "PINION_OWN_SHM" in os.environ
    options.seed = options.seed or random.SystemRandom().randrange(1, 1 << 31)
    return options


def main():
    options = parse()
    counts, passed, n = {}, True, 0
    end = time.monotonic() + options.minutes * 60
    print(f"seed: PINION_TEST_SEED={options.seed}", flush=True)
    while passed and time.monotonic() < end and \
            (not options.rounds or n < options.rounds):
        passed = play(options, options.seed + n, counts)
        n += 1
    for name, (rounds, processes, killed) in sorted(counts.items()):
        print(f"{name}: {rounds} rounds, {processes} processes, {killed} killed")
    return not passed


if __name__ == "__main__":
    sys.exit(main())
