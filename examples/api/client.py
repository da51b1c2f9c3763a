#!/usr/bin/env python3
"""A client of a COB daemon's API, with the standard library alone.

    client.py [--at unix:/run/cob/cobd.sock | --at tcp://127.0.0.1:7077] COMMAND

    status             the host and its change objects
    history [COB]      the history, page by page
    check [COB...]     check now, and wait for the result
    pause, resume      orders
    watch [N]          follow the status, N events

A program imports `Api`. docs/api.md and docs/openapi.json describe the API.
"""

import argparse
import http.client
import json
import os
import socket
import sys
from urllib.parse import quote, urlencode

DEFAULT = "unix:/run/cob/cobd.sock"


class Refused(Exception):
    """A refusal of the daemon: the HTTP status, the reason, the remedy, and a code for programs."""

    def __init__(self, status, body):
        try:
            told = json.loads(body)
        except ValueError:
            # Bytes that are not HTTP, or a head that is too long.
            told = {}
        self.status = status
        self.error = told.get("error", f"HTTP status {status}")
        self.hint = told.get("hint", "")
        self.code = told.get("code")
        super().__init__(self.error)


class UnixConnection(http.client.HTTPConnection):
    """HTTP through a Unix socket."""

    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Api:
    """The API of one daemon. Each request has its own connection, as the daemon demands."""

    def __init__(self, at=DEFAULT, host=None, timeout=75):
        """`at`: `unix:/PATH` or `tcp://127.0.0.1:PORT`; `host`: the intended host, another host refuses."""
        self.at, self.host, self.timeout = at, host, timeout

    def _connect(self):
        if self.at.startswith("unix:"):
            return UnixConnection(self.at.removeprefix("unix:"), self.timeout)
        name, _, port = self.at.removeprefix("tcp://").rpartition(":")
        return http.client.HTTPConnection(name, int(port), timeout=self.timeout)

    def _open(self, method, path, query=None, body=None):
        words = {key: value for key, value in (query or {}).items() if value is not None}
        target = path + ("?" + urlencode(words) if words else "")
        headers = {"cob-host": self.host} if self.host else {}
        if body is not None:
            headers["content-type"] = "application/json"
            body = json.dumps(body)
        connection = self._connect()
        try:
            connection.request(method, target, body=body, headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise Refused(answer.status, answer.read())
        except BaseException:
            connection.close()
            raise
        return connection, answer

    def _read(self, *request, **more):
        connection, answer = self._open(*request, **more)
        try:
            return answer.read()
        finally:
            connection.close()

    def get(self, path, **query):
        """The answer to a question."""
        return json.loads(self._read("GET", path, query))

    def order(self, name, **body):
        """Gives an order. It is durable when this returns, and may be repeated."""
        return json.loads(self._read("POST", f"/v1/{name}", body=body))

    def status(self, cobs="all"):
        return self.get("/v1/status", cobs=cobs)

    def cob(self, cob):
        return self.get("/v1/cobs/" + quote(cob))

    def history(self, cob=None, since=0, page=1000):
        """All entries from a position on, the oldest first."""
        seen = set()
        while True:
            text = self._read("GET", "/v1/history", {"since": since, "cob": cob, "limit": page})
            entries = [json.loads(line) for line in text.splitlines()]
            # A page may end within entries of one position: these come again, and known entries are skipped.
            for entry in entries:
                key = json.dumps(entry, sort_keys=True)
                if key not in seen:
                    yield entry
            if len(entries) < page:
                return
            if entries[-1]["seq"] == since:
                page *= 2
            since = entries[-1]["seq"]
            seen = {json.dumps(entry, sort_keys=True) for entry in entries if entry["seq"] == since}

    def check(self, cobs=()):
        """Checks change objects of the host, all by default, and waits for the result."""
        told = self.order("check", cobs=list(cobs))
        while not told["ended"]:
            told = self.get("/v1/check", round=told["round"])
        return told

    def events(self, status=None):
        """Events of changes, without an end. A silent daemon sends a comment each 15 seconds."""
        connection, answer = self._open("GET", "/v1/events", {"status": status})
        try:
            data = []
            for line in answer:
                line = line.decode().rstrip("\r\n")
                if line.startswith("data:"):
                    data.append(line.removeprefix("data:").removeprefix(" "))
                elif not line and data:
                    yield json.loads("\n".join(data))
                    data = []
        finally:
            connection.close()


def line(cob):
    waits = ", ".join(wait["reason"] for wait in cob["waits_for"])
    return f"  {cob['id']}: {cob['state']} ({cob['phase']}{', waits for ' + waits if waits else ''})"


def show(status):
    host, generation = status["name"], status.get("generation")
    print(f"{host}: generation {generation}, {'converged' if status['converged'] else 'not converged'}")
    print("\n".join(line(cob) for cob in status["cobs"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", default=DEFAULT, metavar="ADDRESS")
    parser.add_argument("command", choices=["status", "history", "check", "pause", "resume", "watch"])
    parser.add_argument("words", nargs="*")
    args = parser.parse_args()
    api, words = Api(args.at), args.words
    if args.command == "status":
        show(api.status())
    elif args.command == "history":
        for entry in api.history(*words[:1]):
            print(entry["ts_ns"], entry["event"], entry.get("cob", ""), entry.get("detail", ""))
    elif args.command == "check":
        told = api.check(words)
        print(f"{told['as_wanted']} of {told['asked']} as wanted, {told['differ']} differ, {told['not_known']} unknown")
        return 0 if told["as_wanted"] == told["asked"] else 1
    elif args.command == "watch":
        for count, event in enumerate(api.events(status="restless"), 1):
            show(event["status"])
            if words and count >= int(words[0]):
                break
    else:
        print(api.order(args.command, who=os.environ.get("USER"))["detail"])
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refused as refused:
        sys.exit(f"refused ({refused.status}): {refused.error}" + (f"\n{refused.hint}" if refused.hint else ""))
    except (OSError, http.client.HTTPException) as error:
        sys.exit(f"no answer: {error}")
