#!/usr/bin/env python3
"""Records what the version before leaves on disk and says over a link: README.md says what for.

usage: record.py BIN OUT    BIN: a folder with cobd and cobgen of that version; OUT: an empty folder
"""

import http.client, json, os, shutil, signal, socket, subprocess, sys, threading, time

BIN, OUT = map(os.path.abspath, sys.argv[1:3])
WORK = os.path.join(OUT, "work")
N1, N2, N2_ITSELF = ("127.77.66.1", 7001), ("127.77.66.2", 7001), ("127.77.66.2", 7002)

KINDS = """
kinds:
  quick:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: "cat $COB_STATE_DIR/state 2>/dev/null || echo down"}
    transitions:
      - {from: down, to: up, run: "[ ! -e $COB_STATE_DIR/hold ] || exec sleep 600; echo up > $COB_STATE_DIR/state"}
      - {from: up, to: down, run: "rm $COB_STATE_DIR/state"}
  flaky:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: "cat $COB_STATE_DIR/state 2>/dev/null || echo down"}
    transitions:
      - {from: down, to: up, retry_delay: 10ms, run: "[ -e $COB_STATE_DIR/tried ] && echo up > $COB_STATE_DIR/state || { touch $COB_STATE_DIR/tried; exit 3; }"}
      - {from: up, to: down, run: "rm $COB_STATE_DIR/state"}
  broken:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: "echo down"}
    transitions:
      - {from: down, to: up, retries: 0, run: "echo it is broken >&2; exit 4"}
      - {from: up, to: down, run: "true"}
"""
HOSTS = f"""
security: loopback-only
hosts:
  n1: {{address: "tcp://{N1[0]}:{N1[1]}"}}
  n2: {{address: "tcp://{N2[0]}:{N2[1]}"}}
  n3: {{address: "tcp://127.77.66.3:7001"}}
"""
FIRST = HOSTS + """
cobs:
  n1/db: {kind: quick, content: {version: 1}}
  n1/flaky: {kind: flaky}
  n1/broken: {kind: broken}
  n1/old: {kind: quick}
  n2/app: {kind: quick, requires: [n1/db], content: {version: 1}}
  n2/user: {kind: quick, requires: [n1/old]}
  n3/away: {kind: quick, requires: [n1/db]}
""" + KINDS
SECOND = HOSTS + """
cobs:
  n1/db: {kind: quick, content: {version: 2}}
  n1/flaky: {kind: flaky}
  n2/app: {kind: quick, requires: [n1/db], content: {version: 1}}
  n2/long: {kind: quick, requires: [n1/db]}
  n3/away: {kind: quick, requires: [n1/db]}
""" + KINDS


def run(*words):
    return subprocess.run([os.path.join(BIN, words[0]), *words[1:]], check=True, text=True, capture_output=True).stdout


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Daemon:
    def __init__(self, folder, host, more=""):
        self.folder, self.host = folder, host
        config = f'host = "{host}"\ndepot = "depot"\nstate_dir = "{host}"\nhttp = "{host}.sock"\n{more}'
        write(os.path.join(folder, f"{host}.toml"), config)
        self.start()

    def start(self):
        log = open(os.path.join(self.folder, f"{self.host}.log"), "a")
        command = [os.path.join(BIN, "cobd"), "run", "--config", f"{self.host}.toml"]
        self.process = subprocess.Popen(command, cwd=self.folder, stderr=log, start_new_session=True)
        self.until(lambda s: True)

    def ask(self, method, path, body=None):
        connection = Unix(os.path.join(self.folder, f"{self.host}.sock"))
        connection.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {text}")
        return text

    def until(self, what):
        for _ in range(3000):
            try:
                if what(json.loads(self.ask("GET", "/v1/status"))):
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise RuntimeError(f"{self.host}: {self.ask('GET', '/v1/status').decode()}")

    def order(self, word, **body):
        self.ask("POST", f"/v1/{word}", body)

    def go(self, generation):
        self.order("prepare", generation=generation)
        self.order("switch", generation=generation)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait()


def cob(status, name):
    return next((c for c in status["cobs"] if c["id"] == name), {})


class Tap:
    """Stands in front of n2 and writes down every frame of the links that go through."""

    def __init__(self):
        self.frames, self.lock = [], threading.Lock()
        self.listener = socket.create_server(N2)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            try:
                far = socket.create_connection(N2_ITSELF)
            except OSError:
                near.close()
                continue
            for way, a, b in ((b">", near, far), (b"<", far, near)):
                threading.Thread(target=self.carry, args=(way, a, b), daemon=True).start()

    def carry(self, way, source, sink):
        # ZMTP 3.0: a greeting of 64 bytes, then frames: flags, a length of one or eight bytes, a body.
        at_hand, greeted = b"", False
        try:
            while piece := source.recv(1 << 16):
                sink.sendall(piece)
                at_hand += piece
                if not greeted and len(at_hand) >= 64:
                    at_hand, greeted = at_hand[64:], True
                while greeted and (frame := split(at_hand)):
                    flags, body, at_hand = frame
                    if not flags & 4:
                        with self.lock:
                            self.frames.append(way + len(body).to_bytes(4, "big") + body)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def split(data):
    if len(data) < 2:
        return None
    begin = 9 if data[0] & 2 else 2
    if len(data) < begin:
        return None
    end = begin + int.from_bytes(data[1:begin], "big")
    return (data[0], data[begin:end], data[end:]) if len(data) >= end else None


def loopback():
    folder = os.path.join(WORK, "loopback")
    depot = os.path.join(folder, "depot")
    write(os.path.join(folder, "model.yaml"), FIRST)
    generate = lambda message: run("cobgen", "generate", f"{folder}/model.yaml", "--depot", depot, "--message", message)
    generate("the first")
    tap = Tap()
    n1 = Daemon(folder, "n1")
    n2 = Daemon(folder, "n2", f'listen = "tcp://{N2_ITSELF[0]}:{N2_ITSELF[1]}"\n')
    n2.order("pause")
    n1.go(1), n2.go(1)
    n2.order("resume")
    n2.until(lambda s: s["converged"])
    given_up = lambda s: cob(s, "n1/broken").get("failed") and cob(s, "n1/flaky").get("state") == "up"
    n1.until(given_up)
    n1.order("retry", cob="n1/broken")
    time.sleep(0.5)
    n1.until(given_up)
    # One end of a life without warning, so that both say hello again.
    n2.kill(), n2.start()
    n2.until(lambda s: s["converged"])
    write(os.path.join(folder, "model.yaml"), SECOND)
    generate("the second")
    write(os.path.join(folder, "n2/cobs/n2+long/hold"), "")
    n1.go(2), n2.go(2)
    n1.until(lambda s: s["converged"] and s["generation"] == 2)
    moving = lambda s: s["generation"] == 2 and cob(s, "n2/long").get("phase") == "moving"
    n2.until(moving)
    # A life that comes back with an action and the lock under it.
    n2.kill(), n2.start()
    n2.until(moving)
    time.sleep(2)
    n2.kill(), n1.kill()
    os.remove(os.path.join(folder, "n2/cobs/n2+long/hold"))
    with open(os.path.join(OUT, "conversation.bin"), "wb") as file:
        file.write(b"".join(tap.frames))
    keep(folder, "loopback", ["n1", "n2"])


def signed():
    folder = os.path.join(WORK, "signed")
    os.makedirs(f"{folder}/n1", mode=0o700)
    publisher = run("cobgen", "key", f"{folder}/publisher.key").split()[0]
    key = run("cobd", "init", "--state-dir", f"{folder}/n1").split()[-1]
    model = lambda version: f"""
hosts:
  n1: {{address: "tcp://127.77.66.4:7001", key: "{key}"}}
cobs:
  n1/db: {{kind: quick, content: {{version: {version}}}}}
  n1/of-{version}: {{kind: quick, requires: [n1/db]}}
{KINDS}"""
    n1 = None
    for version in (1, 2):
        write(f"{folder}/model.yaml", model(version))
        words = ["--depot", f"{folder}/depot", "--sign-with", f"{folder}/publisher.key"]
        run("cobgen", "generate", f"{folder}/model.yaml", *words)
        n1 = n1 or Daemon(folder, "n1", f'trust = ["{publisher}"]\n')
        n1.go(version)
        n1.until(lambda s: s["converged"] and s["generation"] == version)
    # The signed way back.
    n1.go(1)
    n1.until(lambda s: s["converged"] and s["generation"] == 1)
    n1.stop()
    keep(folder, "signed", ["n1"])
    write(os.path.join(OUT, "signed", "trust"), publisher + "\n")


def keep(folder, name, hosts):
    """What is the truth of each host, and the depot; all else can be made again."""
    to = os.path.join(OUT, name)
    shutil.copytree(os.path.join(folder, "depot"), os.path.join(to, "depot"))
    shutil.rmtree(os.path.join(to, "depot/hooks"), ignore_errors=True)
    for host in hosts:
        for part in ("journal", "generations", "cobs", "boot-id", "identity.key"):
            source, target = os.path.join(folder, host, part), os.path.join(to, host, part)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if os.path.isdir(source):
                shutil.copytree(source, target)
            elif os.path.exists(source):
                shutil.copy(source, target)


def end_all():
    """Actions and their runners outlive their daemons: those that name this folder end here."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ, open(f"/proc/{pid}/cmdline", "rb") as words:
                ours = WORK.encode() in environ.read() + words.read()
        except OSError:
            continue
        if ours and int(pid) != os.getpid():
            os.kill(int(pid), signal.SIGKILL)


try:
    loopback()
    signed()
finally:
    end_all()
shutil.rmtree(WORK)
