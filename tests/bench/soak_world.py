"""Of soak.py: what models say and how one becomes the next, whether the world is as they say, and its daemons."""

import collections
import dataclasses
import glob
import http.client
import json
import os
import re
import signal
import socket
import subprocess

HOSTS = ["h1", "h2", "h3", "h4", "h5"]
THINGS = 11
# Places for users' lines in each shared file: far enough from each other to be merged by themselves.
PLACES = 400
KINDS = ["files", "files", "service", "service", "script", "script", "script", "flag", "noop", "wait"]
STEPS = ["add"] * 2 + ["content"] * 3 + ["move", "remove", "kind"] + ["deps"] * 2 + ["hosts", "budget"]
WORDS = ["requires", "requires", "restarts_on", "after"]
ACT = """#!/bin/sh
# What scripts and flags do: act look | up | again | down, and `fail` behind it. Who is up has its content in up/NAME.
# needs/GENERATION/NAME.on has those that must be up while NAME moves, NAME.by those that must not be.
world=${0%/*}
name=$(echo "$COB_ID" | tr / _)
mark=$world/up/$name
needs=$world/needs/$COB_GENERATION/$name
wrong() { echo "$name in generation $COB_GENERATION, $1: $2" >> "$world/wrong"; }
held() { for it in $(cat "$needs.on" 2> /dev/null); do [ -e "$world/up/$it" ] || wrong "$1" "$it is not up"; done; }
free() { for it in $(cat "$needs.by" 2> /dev/null); do [ ! -e "$world/up/$it" ] || wrong "$1" "$it is up"; done; }
case $1 in
look)
    if [ ! -e "$mark" ]; then echo down; elif cmp -s "$mark" "$COB_CONTENT"; then echo up; else echo outdated; fi ;;
up | again)
    [ "$1" = up ] || free "as it begins to move again"
    held "as it begins to go up"
    sleep 0.$(($$ % 4))
    held "as it ends going up"
    [ "$2" != fail ] || exit 1
    cp "$COB_CONTENT" "$world/up/.$name" && mv "$world/up/.$name" "$mark" ;;
down)
    free "as it begins to go down"
    sleep 0.$(($$ % 3))
    free "as it ends going down"
    rm -f "$mark" ;;
esac
"""


@dataclasses.dataclass
class Thing:
    """A change object of a model: the number `key` on `host`, with `version` in its content."""

    key: int
    host: str
    kind: str
    version: int
    deps: list = dataclasses.field(default_factory=list)  # pairs of a key and a word
    fails: bool = False
    budget: bool = False

    @property
    def id(self):
        return f"{self.host}/it{self.key}"

    @property
    def name(self):
        return f"{self.host}_it{self.key}"

    @property
    def marks(self):
        """Whether it leaves a mark in the world while it is up."""
        return self.kind in ("script", "flag")

    @property
    def seconds(self):
        """How long its service sleeps, by which it is known."""
        return 1000000 + self.key * 10 + int(self.host[1:])


class Model:
    """What a generation says, and how it becomes the next one."""

    def __init__(self, hosts, things, rollback=False):
        self.hosts, self.things, self.rollback = hosts, things, rollback

    def copy(self):
        return Model(list(self.hosts), {k: dataclasses.replace(t) for k, t in self.things.items()}, self.rollback)

    def by_name(self):
        return {thing.name: thing for thing in self.things.values()}

    def of_kind(self, kind):
        return [thing for thing in self.things.values() if thing.kind == kind]

    def trees(self):
        return {thing.name for thing in self.of_kind("files")}

    def fails(self):
        return any(thing.fails for thing in self.things.values())

    def mended(self):
        model = self.copy()
        for thing in model.things.values():
            thing.fails = False
        return model

    def add(self, rng, key):
        self.things[key] = Thing(key, rng.choice(self.hosts), rng.choice(KINDS), rng.randint(1, 10**6))
        self.things[key].deps = self.draw_deps(rng, key)

    def draw_deps(self, rng, key):
        lower = [other for other in sorted(self.things) if other < key]
        drawn = rng.sample(lower, min(len(lower), rng.randint(0, 2)))
        return [(other, rng.choice(WORDS)) for other in drawn]

    def next(self, rng):
        """Another model, one to four steps away, which may have something that fails."""
        model = self.mended()
        for _ in range(rng.choice([1, 1, 2, 2, 3, 4])):
            model.change(rng.choice(STEPS), rng)
        for thing in model.things.values():
            thing.deps = [(key, word) for key, word in thing.deps if key in model.things]
            if thing.host not in model.hosts:
                thing.host = rng.choice(model.hosts)
        model.rollback = rng.random() < 0.4
        scripts = model.of_kind("script")
        if scripts and rng.random() < 0.12:
            thing = rng.choice(scripts)
            thing.fails, thing.version = True, rng.randint(1, 10**6)
        return model

    def change(self, step, rng):
        if step == "add":
            free = [key for key in range(THINGS) if key not in self.things]
            if free:
                self.add(rng, rng.choice(free))
            return
        if step == "hosts":
            absent = [host for host in HOSTS if host not in self.hosts]
            if len(self.hosts) > 3 and rng.random() < 0.5:
                self.hosts.remove(rng.choice(self.hosts))
            elif absent:
                self.hosts.append(rng.choice(absent))
            return
        thing = self.things[rng.choice(sorted(self.things))]
        if step == "content":
            thing.version = rng.randint(1, 10**6)
        elif step == "move":
            thing.host = rng.choice(self.hosts)
        elif step == "remove" and len(self.things) > 3:
            del self.things[thing.key]
        elif step == "kind":
            thing.kind = rng.choice(KINDS)
        elif step == "budget":
            thing.budget = not thing.budget
        elif step == "deps":
            thing.deps = self.draw_deps(rng, thing.key)

    def render(self, world, base):
        """The data model, as cobgen reads it; the daemons listen on the ports after `base`."""
        rests = {
            "flag": {"states": ["down", "up", "outdated"], "preferred": "up", "pre_remove": "down", **world.acts(False)}
        }
        rests["flag"]["check"]["interval"] = "4s"
        address = {host: {"address": f"tcp://127.0.0.1:{base + int(host[1:])}"} for host in sorted(self.hosts)}
        model = {"security": "loopback-only", "hosts": address, "kinds": rests}
        model["switch"] = {"on_failure": "rollback" if self.rollback else "hold"}
        if self.things:
            model["cobs"] = {thing.id: self.render_thing(thing, world) for thing in self.things.values()}
        if any(thing.budget and thing.kind == "service" for thing in self.things.values()):
            model["budgets"] = {"b1": {"at_most": 1}}
        return model

    def render_thing(self, thing, world):
        cob = {"kind": thing.kind}
        if thing.kind == "files":
            cob = {"kind": "file-tree", "content": world.tree_content(thing)}
        elif thing.kind == "service":
            cob["content"] = world.service_content(thing, self.reads(thing))
            if thing.budget:
                cob["budget"] = "b1"
        elif thing.kind == "script":
            cob["content"] = {"v": thing.version, **world.acts(thing.fails)}
        elif thing.kind == "flag":
            cob["content"] = {"v": thing.version}
        elif thing.kind == "wait":
            cob["content"] = {"ms": 100 + thing.version % 300}
        for word in sorted(set(WORDS)):
            ids = [self.things[key].id for key, each in thing.deps if each == word]
            if ids:
                cob[word] = ids
        return cob

    def reads(self, service):
        """The trees whose file a service reads when it starts: each change of them starts it anew."""
        on = [self.things[key] for key, word in service.deps if word == "restarts_on"]
        return [thing for thing in on if thing.kind == "files"]


class World:
    """What the cluster does, as anybody can see it: files, marks, processes. And its users, who edit."""

    def __init__(self, folder):
        self.folder = folder
        self.lines = {f"{host}_it{key}": [] for host in HOSTS for key in range(THINGS)}
        # Of each tree that is managed: the lines that have been seen in it since, which have to stay in it.
        self.kept = {name: [] for name in self.lines}
        self.edits = 0
        self.torn = []
        for part in ("up", "seen", "needs", "trees"):
            os.makedirs(f"{folder}/{part}")
        with open(f"{folder}/act", "w", encoding="utf-8") as file:
            file.write(ACT)
        os.chmod(f"{folder}/act", 0o755)
        for name in self.lines:
            os.makedirs(self.tree(name))
            with open(self.shared(name), "w", encoding="utf-8") as file:
                file.write(text_of(None, []))

    def tree(self, name):
        return f"{self.folder}/trees/{name}"

    def shared(self, name):
        return f"{self.tree(name)}/a.conf"

    def acts(self, fails):
        """The check and the transitions of scripts and of the kind `flag`."""
        act, fail = f"{self.folder}/act", " fail" if fails else ""
        moves = [
            {"from": "down", "to": "up", "run": f"{act} up{fail}"},
            {"from": "outdated", "to": "up", "run": f"{act} again{fail}"},
            {"from": "outdated", "to": "down", "run": f"{act} down"},
            {"from": "up", "to": "down", "run": f"{act} down"},
        ]
        return {"check": {"run": f"{act} look"}, "retries": 1, "retry_delay": "300ms", "transitions": moves}

    def tree_content(self, thing):
        files = {
            "a.conf": {"manage": "merge", "content": text_of(thing.version, [])},
            "b.conf": {"content": f"v={thing.version}\n"},
            "sub/c.conf": {"content": f"c={thing.version}\n", "mode": "0640"},
            "cur": {"link": "b.conf"},
        }
        return {"root": self.tree(thing.name), "files": files}

    def service_content(self, thing, reads):
        files = " ".join(f"{self.tree(tree.name)}/b.conf" for tree in reads)
        start = f"cat {files} /dev/null > {self.folder}/seen/{thing.name}; exec sleep {thing.seconds}"
        return {"start": start, "env": {"V": str(thing.version), "SOAK": self.folder}}

    def write_needs(self, generation, model):
        """Tells the actions of a generation what has to hold while they run."""
        folder = f"{self.folder}/needs/{generation}"
        on, by = collections.defaultdict(list), collections.defaultdict(list)
        for thing in model.things.values():
            for key, word in thing.deps:
                other = model.things[key]
                if word == "requires" and thing.marks and other.marks:
                    on[thing.name].append(other.name)
                    by[other.name].append(thing.name)
        os.makedirs(folder)
        for end, lists in (("on", on), ("by", by)):
            for name, names in lists.items():
                with open(f"{folder}/{name}.{end}", "w", encoding="utf-8") as file:
                    file.write(" ".join(names))

    def edit(self, name, rng):
        """Somebody adds a line to a shared file, as editors do, unless somebody else has just written it."""
        number, path = len(self.lines[name]), self.shared(name)
        if number == PLACES:
            return
        line = f"user {name} {number} {rng.randint(0, 10**9)}\n"
        try:
            before = os.stat(path)
            with open(path, encoding="utf-8") as file:
                text = with_line(file.read(), number, line)
        except (OSError, ValueError) as error:
            self.torn.append(f"a user found {name}/a.conf torn: {error}")
            return
        with open(path + ".editor", "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path + ".editor", before.st_mode & 0o7777)
        now = os.stat(path)
        if (now.st_ino, now.st_mtime_ns) != (before.st_ino, before.st_mtime_ns):
            os.remove(path + ".editor")
            return
        os.rename(path + ".editor", path)
        self.lines[name].append((number, line))
        self.kept[name].append((number, line))
        self.edits += 1

    def spoil(self, thing):
        """Somebody writes into a file that is the model's alone."""
        with open(f"{self.tree(thing.name)}/b.conf", "a", encoding="utf-8") as file:
            file.write("junk\n")
        self.edits += 1

    def differences(self, model, certain):
        """What is not as the model says, in words; `certain` has the trees whose users' lines must all be there."""
        wrong = self.wrong_services(model)
        by_name = model.by_name()
        for name in self.lines:
            thing = by_name.get(name)
            wrong += self.wrong_mark(name, thing)
            if thing and thing.kind == "files":
                wrong += self.wrong_tree(name, thing, name in certain)
            else:
                wrong += self.wrong_ruin(name)
            known = {"a.conf", "b.conf", "sub", "cur"}
            wrong += [f"{name}: {left} was left" for left in os.listdir(self.tree(name)) if left not in known]
        return wrong

    def wrong_services(self, model):
        wrong, running = [], self.services()
        wanted = {thing.seconds: thing for thing in model.of_kind("service")}
        for seconds, versions in running.items():
            if seconds not in wanted:
                wrong.append(f"a service that sleeps {seconds} s runs and should not ({len(versions)}x)")
        for seconds, thing in wanted.items():
            want = "".join(f"v={tree.version}\n" for tree in model.reads(thing))
            seen = read(f"{self.folder}/seen/{thing.name}")
            if running.get(seconds, []) != [str(thing.version)]:
                wrong.append(f"service {thing.name} runs with {running.get(seconds, [])}, not [{thing.version}]")
            elif seen != want:
                wrong.append(f"service {thing.name} has read {seen!r}, not {want!r}")
        return wrong

    def wrong_mark(self, name, thing):
        mark = read(f"{self.folder}/up/{name}")
        if thing is None or not thing.marks:
            return [] if mark is None else [f"{name} is up and should not be"]
        if mark is None or f'"v":{thing.version}' not in mark:
            return [f"{name} is up with {mark}, not with {thing.version}"]
        return []

    def wrong_tree(self, name, thing, certain):
        """Of a tree that is managed. A shared file may lack lines only of before it was managed."""
        folder = self.tree(name)
        wrong = []
        for file, want in (("b.conf", f"v={thing.version}\n"), ("sub/c.conf", f"c={thing.version}\n")):
            if read(f"{folder}/{file}") != want:
                wrong.append(f"{name}/{file} is {read(f'{folder}/{file}')!r}, not {want!r}")
        if not os.path.islink(f"{folder}/cur") or os.readlink(f"{folder}/cur") != "b.conf":
            wrong.append(f"{name}/cur does not lead to b.conf")
        text = read(self.shared(name)) or ""
        there = [each for each in self.lines[name] if each[1] in text]
        if text != text_of(thing.version, there):
            wrong.append(f"{name}/a.conf is not version {thing.version} with lines of users: {text[:30]!r}")
        lost = [line for _, line in self.kept[name] if line not in text]
        if lost and certain:
            wrong.append(f"{name}/a.conf has lost {lost}")
        return wrong

    def wrong_ruin(self, name):
        """Of a tree that is not managed: what was there before, with every line that a user ever wrote."""
        there = [path for path in ("b.conf", "sub", "cur") if os.path.lexists(f"{self.tree(name)}/{path}")]
        wrong = [f"{name}/{path} is there and should not be" for path in there]
        text = read(self.shared(name)) or ""
        if text != text_of(None, self.lines[name]):
            lost = [line for _, line in self.lines[name] if line not in text]
            wrong.append(f"{name}/a.conf is not what was before with all users' lines: {text[:30]!r}, lost {lost[:3]}")
        return wrong

    def converged(self, model):
        """What is there counts from now on: all of it must stay where its tree does."""
        trees = model.trees()
        for name, lines in self.lines.items():
            text = read(self.shared(name)) or ""
            self.kept[name] = [each for each in lines if each[1] in text] if name in trees else []

    def services(self):
        """The versions that processes of services were started with, by what they sleep."""
        found = collections.defaultdict(list)
        for seconds, version, _ in self.sleepers():
            found[seconds].append(version)
        return found

    def sleepers(self):
        """(what it sleeps, the version that it was started with, its number) of each process of a service."""
        for number, command, environment in processes(self.folder):
            parts = command.split(b"\0")
            if parts[0] == b"sleep" and re.fullmatch(rb"1000\d\d\d", parts[1]):
                version = re.search(rb"(?:^|\0)V=(\d+)", environment)
                yield int(parts[1]), version.group(1).decode() if version else "", number

    def end_strays(self, model):
        """Ends services that nobody knows of any more, and their keepers: they are found once, not for ever."""
        wanted = {thing.seconds for thing in model.of_kind("service")}
        for number in [number for seconds, _, number in self.sleepers() if seconds not in wanted]:
            keeper = int(re.search(r"PPid:\s+(\d+)", read(f"/proc/{number}/status") or "PPid: 0").group(1))
            for each in filter(lambda it: it > 1, (keeper, number)):
                kill(each)


def kill(number):
    try:
        os.kill(number, signal.SIGKILL)
    except ProcessLookupError:
        pass


def text_of(version, lines):
    """A shared file of a version of the model (none: as it was before), with lines of users."""
    head = "before\nfixed\n" if version is None else f"version = {version}\nfixed\n"
    text = head + "".join(f"s{n}a\ns{n}b\ns{n}c\n" for n in range(PLACES))
    for number, line in lines:
        text = with_line(text, number, line)
    return text


def with_line(text, number, line):
    mark = f"\ns{number}b\n"
    if mark not in text:
        raise ValueError(f"the place {number} is gone")
    return text.replace(mark, mark + line, 1)


def read(path):
    """A file's text; none if it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def processes(folder):
    """(number, command line, environment) of each process that has to do with the folder."""
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(f"{path}/cmdline", "rb") as file:
                command = file.read()
            with open(f"{path}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            continue
        if folder.encode() in command or folder.encode() in environment:
            yield int(path[6:]), command, environment


class Daemon:
    """A host: its daemon's process, and what the log says."""

    def __init__(self, name, folder, base, bin_):
        self.name, self.bin, self.process, self.frozen = name, bin_, None, False
        self.socket, self.log = f"{folder}/{name}.sock", f"{folder}/{name}.log"
        self.config = f"{folder}/{name}.toml"
        self.seen, self.panics = 0, 0
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(f'host = "{name}"\ndepot = "depot"\nstate_dir = "{name}"\nhttp = "{name}.sock"\n')
            file.write(f'listen = "tcp://127.0.0.1:{base + int(name[1:])}"\nfollow = false\n')

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def start(self, environment):
        if self.runs():
            return
        with open(self.log, "ab") as log:
            command = [f"{self.bin}/cobd", "run", "--config", self.config]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def freeze(self, frozen):
        if self.runs() and self.frozen != frozen:
            os.kill(self.process.pid, signal.SIGSTOP if frozen else signal.SIGCONT)
        self.frozen = frozen

    def end(self, how):
        """Ends it with a signal; says whether it has ended in time."""
        self.freeze(False)
        if self.runs():
            self.process.send_signal(how)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False
        return True

    def status(self):
        """What it says of itself; nothing if it does not answer."""
        connection = http.client.HTTPConnection("localhost", timeout=10)
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.settimeout(10)
            connection.sock.connect(self.socket)
            connection.request("GET", "/v1/status", headers={"host": "localhost"})
            return json.load(connection.getresponse())
        except (OSError, ValueError, http.client.HTTPException):
            return {}
        finally:
            connection.close()

    def news(self):
        """What its log says since it was last asked."""
        with open(self.log, "rb") as log:
            log.seek(self.seen)
            text = log.read()
        self.seen += len(text)
        return text.decode(errors="replace")

    def takes(self):
        """(memory in MB, the most of it, descriptors) of this life."""
        status = read(f"/proc/{self.process.pid}/status") or ""
        most = {key: int(value) // 1024 for key, value in re.findall(r"(VmRSS|VmHWM):\s+(\d+)", status)}
        descriptors = len(glob.glob(f"/proc/{self.process.pid}/fd/*"))
        return most.get("VmRSS", 0), most.get("VmHWM", 0), descriptors
