#!/usr/bin/env python3
"""Plays the life of a cluster at random, for as long as you like, and looks for what went wrong.

Five daemons on loopback go from one random generation to the next: file trees that users edit, services, scripts and
flags that rely on each other, waits, budgets, things that fail. Meanwhile daemons are killed, stopped and frozen,
actions, runners and services killed, and an operator pauses, cancels, calls off and goes back. After each round all is
put in order and a generation is ordered, and the world has to become what its model says: processes, marks of the
scripts, every file with every line of its users (docs/decisions/0021). Wrong are besides: an action that ran while what
it relies on did not hold, a panic, a daemon that ends, a command that hangs, a switch that fails and says it did not,
and whatever is left of all that when everything has left the model.

With --before DIR the hosts begin with the programs of the version before and change to those of --bin one after the
other, also in the midst of switches, and as long as one of them is old the old cobgen and cobctl are used, too.
"""

import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from soak_world import HOSTS, Daemon, Model, World, kill, processes, read  # noqa: E402

EXAMPLE = """example:
  tests/bench/soak.py --minutes 30 --seed 7                            the programs of target/debug
  tests/bench/soak.py --bin target/dist --before ../before/target/dist --minutes 30

Exit status: 0 nothing was found, 1 something was (its folder is kept, and named), 2 wrong usage."""

# The machine may be busy: who needs longer than this to converge, with nothing in the way, hangs.
PATIENCE_S = 120


class Soak:
    """The run: its cluster, its rounds, and what was found."""

    def __init__(self, options):
        self.options, self.began = options, time.monotonic()
        self.folder = tempfile.mkdtemp(prefix="soak.", dir=os.environ.get("COB_TEST_DIR"))
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("COB_")}
        self.environment.update(COB_DEPOT=f"{self.folder}/depot", RUST_BACKTRACE="1", NO_COLOR="1")
        self.world = World(f"{self.folder}/world")
        self.base = free_ports()
        old = options.before
        self.daemons = {h: Daemon(h, self.folder, self.base, old or options.bin) for h in HOSTS}
        # Hosts that still have the old programs, in the order in which they get the new ones.
        self.old = self.rng("upgrades", 0).sample(HOSTS, len(HOSTS)) if old else []
        self.old_round, self.touched = False, set(HOSTS)
        self.generations = {}
        self.counts = collections.Counter()
        self.findings, self.told = [], False
        self.seen_wrong = set()
        self.log_file = open(f"{self.folder}/soak.log", "w", encoding="utf-8")  # closed with the process

    def rng(self, what, number):
        """Chance for one purpose in one round: what is drawn for another, or how often, changes nothing of it."""
        return random.Random(f"{self.options.seed} {what} {number}")

    def log(self, text):
        line = f"{time.monotonic() - self.began:7.1f} {text}"
        print(line, flush=True)
        self.log_file.write(line + "\n")
        self.log_file.flush()

    def found(self, what, detail=""):
        """Something is wrong: it is told, and what there is to see now goes into a file."""
        number = len(self.findings) + 1
        path = f"{self.folder}/finding-{number}.txt"
        self.findings.append(what)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{what}\n\n{detail}\n")
        self.log(f"FOUND {number}: {what[:600]}")
        self.log(f"        more in {path}, h*.log and soak.log beside it")

    # Programs

    def begin(self, program, words, old=False):
        command = [f"{self.options.before if old else self.options.bin}/{program}", *words]
        said = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        return subprocess.Popen(command, env=self.environment, cwd=self.folder, **said)

    def run(self, program, *words, old=False, limit=100):
        """Runs a program to its end: (exit status, what it printed)."""
        with self.begin(program, words, old) as child:
            return self.wait_for(child, words, limit)

    def wait_for(self, child, words, limit, patient=False):
        """Its exit status and what it printed; who is `patient` need not end by itself."""
        try:
            out = child.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            child.kill()
            out = child.communicate()[0]
            if not patient:
                self.found(f"`{' '.join(words)}` has not ended after {limit} s", out)
        if "panicked" in out or child.returncode == 70:
            self.found(f"`{' '.join(words)}` panics", out)
        return child.returncode, out

    def ctl(self, *words):
        return self.run("cobctl", *words)

    def order(self, *words, limit=100):
        """cobctl as an operator has it, in some rounds of an upgrade the old one, who interrupts it after a time."""
        with self.begin("cobctl", words, self.old_round) as child:
            status, _ = self.wait_for(child, words, limit, patient=True)
        self.log(f"  cobctl {' '.join(words)}{' (old)' if self.old_round else ''}: {status}")

    def publish(self, model):
        """The number of the model's generation; none if it is refused."""
        folder = f"{self.folder}/model"
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/model.json", "w", encoding="utf-8") as file:
            json.dump(model.render(self.world, self.base), file, indent=1)
        words = ("generate", folder, "--depot", f"{self.folder}/depot", "--json")
        status, out = self.run("cobgen", *words, old=self.old_round)
        if status != 0:
            self.counts["refused models"] += 1
            with open(f"{self.folder}/refused.log", "a", encoding="utf-8") as file:
                file.write(out + "\n----\n")
            if status not in (1, 2):
                self.found(f"cobgen generate ends with {status}", out)
            return None
        # Warnings come before it, with pieces of the model.
        generation = json.JSONDecoder().raw_decode("\n" + out, f"\n{out}".rindex("\n{\n") + 1)[0]["generation"]
        if generation not in self.generations:
            self.generations[generation] = model.copy()
            self.world.write_needs(generation, model)
        return generation

    # Daemons

    def restart(self, daemon, rng):
        """Kills a daemon or ends it, and starts it again; when its turn has come, with the new programs."""
        clean = rng.random() < 0.3
        self.counts["stops" if clean else "kills"] += 1
        if not daemon.end(signal.SIGTERM if clean else signal.SIGKILL):
            self.found(f"{daemon.name} does not end within 30 s after SIGTERM")
        what = "ends" if clean else "is killed"
        if self.upgrade_is_due() and daemon.name == self.old[0]:
            self.old.pop(0)
            daemon.bin = self.options.bin
            self.counts["upgrades"] += 1
            what += " and comes with the new programs"
        self.log(f"  {daemon.name} {what}")
        time.sleep(rng.choice([0, 0, 0.2, 1]))
        daemon.start(self.environment)

    def upgrade_is_due(self):
        """The first host changes after a tenth of the time, the last one after three fifths."""
        share = (time.monotonic() - self.began) / (self.options.minutes * 60)
        upgraded = len(HOSTS) - len(self.old)
        return bool(self.old) and share > 0.1 + 0.5 * upgraded / (len(HOSTS) - 1)

    def upgrade(self, rng):
        if self.upgrade_is_due():
            self.restart(self.daemons[self.old[0]], rng)

    def children(self):
        """Processes of daemons: actions, their runners, services with their keepers."""
        found = collections.defaultdict(list)
        for number, command, environment in processes(self.folder):
            if b"\0__run-actions" in command:
                found["runner"].append(number)
            elif b"\0__keep-service" in command or b"COB_SERVICE=" in environment:
                found["service"].append(number)
            elif b"COB_JOB=" in environment:
                found["action"].append(number)
        return found

    def heal(self):
        """Nothing is in the way any more. Orders that frozen hosts hear late have a moment to be late."""
        for daemon in self.daemons.values():
            daemon.freeze(False)
            if daemon.process is not None and not daemon.runs():
                self.found(f"{daemon.name} has ended by itself ({daemon.process.returncode})", tail(daemon.log))
            daemon.start(self.environment)
        time.sleep(0.3)
        self.ctl("resume")
        self.ctl("limit", "none")

    # Chaos

    def chaos(self, rng):
        """One thing goes wrong, or somebody orders something."""
        steps = {
            self.chaos_restart: 26,
            self.chaos_freeze: 12,
            self.chaos_thaw: 20,
            self.chaos_kill: 19,
            self.chaos_order: 28,
            self.chaos_edit: 10,
            self.chaos_rest: 7,
        }
        self.upgrade(rng)
        rng.choices(list(steps), list(steps.values()))[0](rng)
        time.sleep(rng.random() * 0.5)

    def chaos_restart(self, rng):
        self.restart(self.daemons[rng.choice(HOSTS)], rng)

    def chaos_freeze(self, rng):
        daemon = self.daemons[rng.choice(HOSTS)]
        daemon.freeze(True)
        self.counts["freezes"] += 1
        self.log(f"  {daemon.name} is frozen")

    def chaos_thaw(self, _):
        for daemon in self.daemons.values():
            daemon.freeze(False)

    def chaos_kill(self, rng):
        what = rng.choices(["action", "runner", "service"], [12, 4, 3])[0]
        numbers = self.children()[what]
        if numbers:
            kill(rng.choice(numbers))
            self.counts["kills of processes"] += 1
            self.log(f"  one {what} is killed")

    def chaos_order(self, rng):
        last = sorted(self.generations)[-3:]
        orders = {
            ("pause",): 5,
            ("resume",): 6,
            ("cancel",): 4,
            ("limit", rng.choice(["1", "2", "none"])): 3,
            ("call-off", str(last[-1])): 3,
            ("rollback",): 3,
            ("switch", str(rng.choice(last)), "--wait", "1s"): 4,
        }
        order = rng.choices(list(orders), list(orders.values()))[0]
        self.order(*order, "--timeout", "1s", limit=4)

    def chaos_edit(self, rng):
        self.world.edit(rng.choice(sorted(self.world.lines)), rng)

    def chaos_rest(self, rng):
        time.sleep(rng.random() * 2)

    # Rounds

    def certain(self, *generations):
        """The trees that were in every generation that their host has heard of in this round: all lines of their
        users must be in them. An older daemon forgot some of a tree that went off and came again."""
        certain = set(self.world.lines)
        for host, daemon in self.daemons.items():
            text = daemon.news()
            self.look_for_panics(daemon, text)
            heard = {int(number) for number in re.findall(r"generation=(\d+)", text)} - {0}
            self.heard[host] |= heard | set(generations)
        for host, heard in self.heard.items():
            for name in [name for name in certain if name.startswith(host)]:
                models = [self.generations.get(number) for number in heard]
                if host in self.touched or not all(model and name in model.trees() for model in models):
                    certain.discard(name)
        return certain

    def look_for_panics(self, daemon, text):
        if "panicked" in text:
            self.found(f"{daemon.name} panics", text[max(0, text.index("panicked") - 300) :][:6000])

    def differences(self, *generations):
        return self.world.differences(self.generations[generations[-1]], self.certain(*generations))

    def converge(self, start, generation):
        """Orders a generation until the world is as it says; whether that happened in time."""
        began, tries = time.monotonic(), 0
        self.counts["switches"] += 1
        status, said = self.ctl("switch", str(generation), "--wait", "45s")
        if status != 0:
            self.log(f"  switch {generation} ends with {status}: {' | '.join(said.strip().splitlines()[-3:])}")
        while time.monotonic() - began < PATIENCE_S:
            wrong = self.differences(start, generation) + self.not_there(generation)
            if not wrong:
                self.world.converged(self.generations[generation])
                self.log(f"  converged to {generation} after {time.monotonic() - began:.1f} s")
                return True
            tries += 1
            if tries % 4 == 0:
                self.again(generation)
            time.sleep(0.7)
        self.found(f"not converged to {generation}: {wrong[:8]}", self.evidence(wrong, said))
        return False

    def not_there(self, generation):
        """Hosts that say that they are elsewhere, or not there yet."""
        wrong = []
        for host in self.generations[generation].hosts:
            status = self.daemons[host].status()
            if status.get("generation") != generation or not status.get("converged"):
                wrong.append(f"{host} is at {status.get('generation')}, converged: {status.get('converged')}")
        if not wrong and generation == max(self.generations):
            status, out = self.ctl("status")
            if status != 0:
                wrong.append(f"cobctl status ends with {status}: {out[-200:]}")
        return wrong

    def again(self, generation):
        """What an operator does whose orders came late, or whose actions were killed too often."""
        self.ctl("resume")
        self.ctl("limit", "none")
        for daemon in self.daemons.values():
            for cob in daemon.status().get("cobs", []):
                if cob.get("failed"):
                    self.ctl("retry", cob["id"])
        self.ctl("switch", str(generation), "--wait", "10s")

    def evidence(self, wrong, said):
        """What people would ask next."""
        named = sorted({f"{host}/it{key}" for host, key in re.findall(r"(h\d)_it(\d+)", " ".join(wrong))})
        parts = ["\n".join(wrong), said, self.ctl("status", "--all")[1]]
        parts += [self.ctl("explain", each)[1] for each in HOSTS + named[:6]]
        parts += [self.ctl("history", each, "-n", "60")[1] for each in named[:6]]
        return "\n----\n".join(parts)

    def disturb(self, number, generation, model):
        """A switch with everything that can go wrong meanwhile."""
        rng = self.rng("chaos", number)
        words = ["switch", str(generation), "--timeout", "1s", "--wait", "20s"]
        words += rng.choice([[], [], [], ["--limit-hosts", "2"], ["--canary", rng.choice(model.hosts)]])
        self.counts["switches"] += 1
        with self.begin("cobctl", words, self.old_round) as child:
            for _ in range(rng.randint(3, 10)):
                self.chaos(rng)
            self.chaos_thaw(rng)
            self.wait_for(child, words, 60)

    def fail(self, start, generation, model, quiet):
        """A switch in which something fails; its mended generation, none if that is refused."""
        self.counts["switches"] += 1
        status, out = self.ctl("switch", str(generation), "--wait", "30s")
        if status == 0:
            self.found(f"the switch to {generation}, in which something fails, ends with 0", out)
        if model.rollback:
            until = time.monotonic() + 40
            while (wrong := self.differences(generation, start)) and time.monotonic() < until:
                time.sleep(1)
            self.log(f"  {generation} has failed and {'did not go' if wrong else 'went'} back by itself")
            if wrong and quiet:
                self.found(f"{generation} failed and did not go back: {wrong[:8]}", self.evidence(wrong, out))
        return self.publish(model.mended())

    def round(self, number, start):
        """One round from a generation to the next, which is the answer."""
        plan, edits = self.rng("plan", number), self.rng("edits", number)
        self.heard = {host: set() for host in HOSTS}
        self.certain(start)
        self.heard = {host: {start} for host in HOSTS}
        model = self.generations[start]
        self.edit(model, edits)
        self.old_round = bool(self.old) and plan.random() < 0.4
        generation = None
        while generation is None:
            following = model.next(plan)
            generation = self.publish(following)
        quiet = self.options.no_chaos or plan.random() < 0.25
        back, ordered = plan.random() < 0.2, plan.random() < 0.5
        if self.options.no_chaos:
            self.upgrade(plan)
        notes = [f"old: {', '.join(self.old)}" if self.old else "", "with old programs" if self.old_round else ""]
        notes += ["fails"] * following.fails() + ["rollback"] * following.rollback + ["quiet"] * quiet
        self.log(f"round {number}: {start} -> {generation} {'; '.join(filter(None, notes))}")
        if not quiet:
            self.disturb(number, generation, following)
        self.heal()
        target = generation
        if following.fails():
            target = self.fail(start, generation, following, quiet) or start
        elif back:
            target = start
            if ordered:
                self.order("rollback", "--wait", "30s")
        if not self.converge(start, target):
            # Whatever is there now: the next round begins from it.
            self.world.end_strays(self.generations[target])
            self.world.converged(self.generations[target])
        self.touched = set(self.old)
        self.look_for_violations()
        return target

    def edit(self, model, rng):
        """What users do while nothing moves."""
        trees = model.of_kind("files")
        names = rng.sample(sorted(self.world.lines), 3) + [tree.name for tree in trees if rng.random() < 0.5]
        for name in names:
            self.world.edit(name, rng)
        if trees and rng.random() < 0.3:
            self.world.spoil(rng.choice(trees))

    def look_for_violations(self):
        wrong = (read(f"{self.world.folder}/wrong") or "").splitlines() + self.world.torn
        new = [what for what in wrong if what not in self.seen_wrong]
        self.seen_wrong.update(new)
        if new:
            self.found(f"what must never be was seen meanwhile: {new[:3]}", "\n".join(new))

    def play(self):
        model = Model(list(HOSTS), {})
        for key in range(6):
            model.add(self.rng("plan", key - 6), key)
        self.heard = {host: set() for host in HOSTS}
        at = self.publish(model)
        for daemon in self.daemons.values():
            daemon.start(self.environment)
        time.sleep(2)
        self.converge(at, at)
        first = {host: daemon.takes() for host, daemon in self.daemons.items()}
        while time.monotonic() - self.began < self.options.minutes * 60:
            self.counts["rounds"] += 1
            at = self.round(self.counts["rounds"], at)
        last = {host: daemon.takes() for host, daemon in self.daemons.items()}
        self.leave(at)
        return first, last

    def leave(self, at):
        """Everything leaves the model, and nothing may stay."""
        self.old_round = False
        generation = self.publish(Model(list(HOSTS), {}))
        self.heal()
        if generation is None or not self.converge(at, generation):
            self.found("not everything could leave")
        status, out = self.run("cobgen", "fsck", "--depot", f"{self.folder}/depot")
        if status != 0:
            self.found(f"cobgen fsck ends with {status}", out)
        for daemon in self.daemons.values():
            if not daemon.end(signal.SIGTERM):
                self.found(f"{daemon.name} does not end within 30 s after SIGTERM")
        until = time.monotonic() + 10
        while (left := list(processes(self.folder))) and time.monotonic() < until:
            time.sleep(0.5)
        if left:
            self.found(f"processes are left: {[(number, command[:200]) for number, command, _ in left]}")

    def tell(self, first, last):
        self.told = True
        self.counts["edits"] = self.world.edits
        names = ["rounds", "switches", "kills", "stops", "upgrades", "freezes", "kills of processes", "edits"]
        counts = ", ".join(f"{self.counts[name]} {name}" for name in [*names, "refused models"])
        self.log(f"seed {self.options.seed}: {counts}, {len(self.findings)} findings")
        for host, (memory, _, descriptors) in first.items():
            later, most, more = last[host]
            end = f"{later} MB (at most {most}) and {more} at last"
            self.log(f"{host}: {memory} MB and {descriptors} descriptors at first, {end}")
        for number, what in enumerate(self.findings, 1):
            self.log(f"FOUND {number}: {what[:300]}")

    def end(self):
        """No process of this run stays; the folder does where there is something to see in it."""
        for daemon in self.daemons.values():
            if daemon.process is not None:
                daemon.end(signal.SIGKILL)
        for number, _, _ in processes(self.folder):
            kill(number)
        if self.findings or self.options.keep or not self.told:
            print(f"all of it is in {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)


def free_ports():
    """A number behind which there is a port for each host; others may be at the same."""
    while True:
        base = random.SystemRandom().randrange(20000, 32000)
        probes = [socket.socket() for _ in HOSTS]
        try:
            for number, probe in enumerate(probes, base + 1):
                probe.bind(("127.0.0.1", number))
            return base
        except OSError:
            pass
        finally:
            for probe in probes:
                probe.close()


def tail(path):
    return (read(path) or "")[-4000:]


def options():
    here = os.path.dirname(os.path.abspath(__file__))
    target = os.environ.get("CARGO_TARGET_DIR", f"{here}/../../target")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLE, formatter_class=form)
    parser.add_argument("--bin", metavar="DIR", default=f"{target}/debug", help="the programs (target/debug)")
    parser.add_argument("--before", metavar="DIR", help="programs of the version before: a rolling upgrade")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="the same one makes the same plan")
    parser.add_argument("--minutes", type=float, default=5, help="how long (5); the last round ends later")
    parser.add_argument("--no-chaos", action="store_true", help="nothing is killed, and nobody interferes")
    parser.add_argument("--keep", action="store_true", help="the folder stays (of COB_TEST_DIR, or where TMPDIR is)")
    chosen = parser.parse_args()
    for folder in filter(None, (chosen.bin, chosen.before)):
        for program in ("cobd", "cobctl", "cobgen"):
            if not os.access(os.path.join(folder, program), os.X_OK):
                parser.error(f"there is no {program} in {folder}")
    chosen.bin, chosen.before = os.path.abspath(chosen.bin), chosen.before and os.path.abspath(chosen.before)
    return chosen


def main():
    chosen = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    soak = Soak(chosen)
    soak.log(f"seed {chosen.seed}, {chosen.minutes:g} minutes, in {soak.folder}")
    try:
        soak.tell(*soak.play())
    finally:
        soak.end()
    return 1 if soak.findings else 0


if __name__ == "__main__":
    sys.exit(main())
