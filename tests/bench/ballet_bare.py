#!/usr/bin/env python3
"""What starting the processes itself costs on this machine: the same actions without daemons.

One process that knows everything plays the rules of critical_path.py with real actions: each is begun in the very moment
in which it may begin, with the same three processes (a shell, a shell, a sleep) as in the replay on daemons. What this takes
beyond T* of the lengths that its actions had is waiting for a processor, no ordering.

  ballet_bare.py BALLET_FOLDER CASE PHASE SITES SCALE RELEASE
"""
import os
import sys
import tempfile
import time

ballet, case, phase, sites, scale, release = sys.argv[1:]
sys.path.insert(0, ballet)
import critical_path  # noqa: E402
from make_model import expand, load, start_states  # noqa: E402


class Machine(critical_path.World):
    """A world in which actions are processes and time passes by itself."""

    def __init__(self, cobs, start, folder):
        super().__init__(cobs, start)
        self.folder, self.running, self.spans = folder, {}, {}

    def begin(self, cob, edge, held):
        state = os.path.join(self.folder, cob.replace("/", "+"))
        command = f"sh -c 'sleep {edge['ms'] / 1000 * float(scale):f} || exit 1; echo {edge['to']} >>\"$COB_STATE\"'"
        began = time.monotonic()
        pid = os.posix_spawn("/bin/sh", ["/bin/sh", "-c", command], {"PATH": os.environ["PATH"], "COB_STATE": state})
        self.running[pid] = (cob, edge, began)

    def run(self):
        self.began = time.monotonic()
        for cob in list(self.cobs):
            self.cobs[cob].decide()
        while True:
            while self.mail:
                pair = next(iter(self.mail))
                queue = self.mail[pair]
                message = queue.popleft()
                if not queue:
                    del self.mail[pair]
                self.cobs[pair[1]].receive(pair[0], *message)
            if not self.running:
                break
            pid, status = os.wait()
            assert status == 0, "an action failed"
            cob, edge, began = self.running.pop(pid)
            ended = time.monotonic()
            self.spans[cob, edge["from"], edge["to"]] = (ended - began) * 1000
            self.cobs[cob].ended()
        return (ended - self.began) * 1000


data = load(case)
cobs = expand(data, int(sites), release)
start = start_states(data, cobs, phase)
with tempfile.TemporaryDirectory(dir=os.environ.get("COB_TEST_DIR")) as folder:
    machine = Machine(cobs, start, folder)
    took = machine.run()
for name, cob in cobs.items():
    for edge in cob["transitions"]:
        edge["ms"] = machine.spans.get((name, edge["from"], edge["to"]), edge["ms"] * float(scale))
total, _ = critical_path.longest_path(cobs, start)
print(f"{phase} without daemons: T {took / 1000:.4f} s, T* of its lengths {total / 1000:.4f} s: "
      f"{took - total:.1f} ms beyond it are the starts of {len(machine.spans)} actions")
