#!/usr/bin/env python3
"""lsp.py [COBGEN] [LINES] - the time of each answer of `cobgen lsp` while somebody types.

Writes a model of this many lines (5,000 by default) as a folder of two files: services of change objects that need each
other, and hosts with clusters. Then it acts as an editor: it opens the files, types a letter at a time at random places,
and asks after each letter for completions, explanations, definitions, the outline and the form, and now and then for a
rename. Beside the answers stands the time from a change to the findings of the check that has seen it; an answer does
not wait for findings. COBGEN: the program, by default the dist build.
"""

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Queue

LETTERS = 200
SERVICES = 10


def services(lines):
    text = "services:\n"
    for service in range(SERVICES):
        text += f"  s{service}:\n" + (f"    requires: [s{service - 1}]\n" if service else "") + "    cobs:\n"
        for cob in range((lines - 60) // SERVICES // 5):
            needs = f"[c{cob - 1}]" if cob else "[]"
            text += f"      c{cob}:\n        kind: line\n        restarts_on: {needs}\n"
            text += f"        content: {{path: '/etc/s{service}/c{cob}', line: 'value {{{{ host.name }}}}'}}\n"
            text += f"        # the line {cob} of service {service}\n"
    return text


def hosts():
    text = "security: loopback-only\nhosts:\n"
    text += "".join(f"  n{host}: {{address: 'tcp://127.0.0.{host}:7171'}}\n" for host in range(1, 4))
    return text + "clusters:\n  c:\n    nodes: [n1, n2, n3]\n    services: [" + ", ".join(f"s{s}" for s in range(SERVICES)) + "]\n"


class Editor:
    def __init__(self, program):
        self.server = subprocess.Popen([program, "lsp", "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.answers, self.findings, self.last = Queue(), Queue(), 0
        threading.Thread(target=self.read, daemon=True).start()
        self.ask("initialize", {"capabilities": {}})
        self.tell("initialized", {})

    def read(self):
        out = self.server.stdout
        while head := out.readline():
            length = int(head.split(b":")[1])
            while out.readline().strip():
                pass
            message = json.loads(out.read(length))
            (self.answers if "id" in message else self.findings).put((time.perf_counter(), message))

    def send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.server.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.server.stdin.flush()

    def tell(self, method, params):
        self.send({"method": method, "params": params})

    def ask(self, method, params):
        """The answer, and the milliseconds from the question to it."""
        self.last += 1
        began = time.perf_counter()
        self.send({"id": self.last, "method": method, "params": params})
        at, answer = self.answers.get(timeout=600)
        assert answer["id"] == self.last and "error" not in answer, answer
        return answer["result"], (at - began) * 1000


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "target/dist/cobgen"
    lines = int(sys.argv[2]) if len(sys.argv) > 2 else 5000
    random.seed(1)
    took = {}
    with tempfile.TemporaryDirectory() as folder:
        texts = {"hosts.yaml": hosts(), "services.yaml": services(lines)}
        for name, text in texts.items():
            (Path(folder) / name).write_text(text)
        editor = Editor(program)
        uri = {name: f"file://{folder}/{name}" for name in texts}
        for name, text in texts.items():
            document = {"uri": uri[name], "languageId": "yaml", "version": 1, "text": text}
            editor.tell("textDocument/didOpen", {"textDocument": document})
        of = {"uri": uri["services.yaml"]}
        rows = texts["services.yaml"].split("\n")
        places = [row for row, line in enumerate(rows) if "kind: line" in line]
        letters = 0
        while letters < LETTERS:
            row = random.choice(places)
            whole = rows[row]
            start = whole.index("line")
            # `line` is typed again, a letter at a time.
            for end in range(start, len(whole) + 1):
                rows[row] = whole[:end]
                began = time.perf_counter()
                change = {"textDocument": {**of, "version": letters + 2}, "contentChanges": [{"text": "\n".join(rows)}]}
                editor.tell("textDocument/didChange", change)
                letters += 1
                here = {"textDocument": of, "position": {"line": row, "character": end}}
                need = {"textDocument": of, "position": {"line": row + 1, "character": rows[row + 1].index("[") + 2}}
                # The first question waits until the server has read the change.
                questions = [("completion", here), ("completion", need), ("hover", here), ("definition", need)]
                questions += [("documentSymbol", {"textDocument": of}), ("prepareRename", need)]
                if end == len(whole):
                    questions.append(("formatting", {"textDocument": of, "options": {"tabSize": 2, "insertSpaces": True}}))
                for at, (name, params) in enumerate(questions):
                    if name == "prepareRename" and "[]" in rows[row + 1]:
                        continue
                    kind = "completion after a change" if at == 0 else name
                    took.setdefault(kind, []).append(editor.ask(f"textDocument/{name}", params)[1])
            rows[row] = whole
        row = next(row for row, line in enumerate(rows) if line == "  s5:")
        for _ in range(5):
            here = {"textDocument": of, "position": {"line": row, "character": 3}}
            answer, ms = editor.ask("textDocument/rename", {**here, "newName": "other"})
            assert len(answer["changes"]) == 2, answer["changes"].keys()
            took.setdefault("rename", []).append(ms)
        # A change that nothing else follows: from the change to its findings.
        for number in range(5):
            time.sleep(0.5)
            while not editor.findings.empty():
                editor.findings.get()
            wrong = "\n".join(rows).replace("kind: line", f"kind: wrong{number}", 1)
            began = time.perf_counter()
            editor.tell("textDocument/didChange", {"textDocument": {**of, "version": 1000 + number}, "contentChanges": [{"text": wrong}]})
            while True:
                at, message = editor.findings.get(timeout=600)
                if f"wrong{number}" in json.dumps(message):
                    break
            took.setdefault("findings", []).append((at - began) * 1000)
        editor.ask("shutdown", None)
        editor.tell("exit", None)
        editor.server.wait()
        print(f"{sum(len(text.splitlines()) for text in texts.values())} lines, {letters} letters")
    print(f"{'answer':28} {'median':>9} {'99 %':>9} {'longest':>9}   ms")
    for name, times in took.items():
        times.sort()
        print(f"{name:28} {times[len(times) // 2]:9.1f} {times[len(times) * 99 // 100]:9.1f} {times[-1]:9.1f}   {len(times)} times")


main()
