"""Runs commands in the virtual machine of vm.sh, through a serial port.

Without arguments: in the machine, serves one command after the other. `vm_agent.py SOCKET CMD...`: on the machine that
emulates it, runs CMD and ends with its result. Each message is a line of JSON, and names the request: an answer to a
request that nobody waits for any more is passed over.
"""

import base64
import json
import os
import socket
import subprocess
import sys
import time

PORT = "/dev/virtio-ports/agent"


def serve():
    port = os.open(PORT, os.O_RDWR)
    with os.fdopen(port, "r+b", buffering=0) as port:
        pending = b""
        while True:
            data = port.read(65536)
            if not data:
                time.sleep(0.2)  # nobody is connected to the port
                continue
            pending += data
            while b"\n" in pending:
                line, pending = pending.split(b"\n", 1)
                try:
                    request = json.loads(line)
                except ValueError:
                    continue
                answer(port, request)


def answer(port, request):
    def say(**fields):
        fields["request"] = request["request"]
        data = json.dumps(fields).encode() + b"\n"
        while data:
            data = data[port.write(data):]

    say(output="")
    child = subprocess.Popen(request["command"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)
    while chunk := child.stdout.read1(8192):
        say(output=base64.b64encode(chunk).decode())
    say(result=child.wait())


def run(path, command):
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    request = "%d-%d" % (os.getpid(), time.monotonic_ns())
    environment = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
                   "LANG=C.UTF-8"]
    # A line end first: it ends what an interrupted caller has left.
    link.sendall(b"\n" + json.dumps({"request": request, "command": environment + command}).encode() + b"\n")
    for line in link.makefile("rb"):
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if message.get("request") != request:
            continue
        if "result" in message:
            return message["result"] if message["result"] >= 0 else 128 - message["result"]
        sys.stdout.buffer.write(base64.b64decode(message["output"]))
        sys.stdout.buffer.flush()
    return 255


if len(sys.argv) > 2:
    sys.exit(run(sys.argv[1], sys.argv[2:]))
serve()
