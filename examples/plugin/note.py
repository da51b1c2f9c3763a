#!/usr/bin/env python3
"""A plug-in in Python: sets one key of a JSON file, and takes it back by `revert` with what it has saved."""

import json
import os
import sys


def read(path):
    """The file's object; an empty one where there is no file."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def write(path, value):
    """Replaces the file at once, so that whoever is killed leaves the old one or the new one."""
    with open(path + ".cob-new", "w", encoding="utf-8") as file:
        json.dump(value, file, sort_keys=True)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".cob-new", path)


def describe(_):
    return {"states": ["down", "up"]}


def check(message):
    config = message["config"]
    found = read(config["file"]).get(config["key"])
    if found == config["value"]:
        return {"state": "up"}
    return {"state": "down", "difference": f"{config['key']} is {json.dumps(found)}"}


def transition(message):
    config = message["config"]
    everything = read(config["file"])
    before = {"was": everything.get(config["key"]), "was_there": config["key"] in everything}
    everything[config["key"]] = config["value"]
    write(config["file"], everything)
    return {"done": True, "saved": json.dumps(before)}


def revert(message):
    if message["saved"] is None:
        # Nothing was changed, or it was taken back already.
        return {"done": True}
    config = message["config"]
    everything = read(config["file"])
    before = json.loads(message["saved"])
    if before["was_there"]:
        everything[config["key"]] = before["was"]
    else:
        everything.pop(config["key"], None)
    write(config["file"], everything)
    return {"done": True}


CALLS = {"describe": describe, "check": check, "transition": transition, "revert": revert}


def main():
    message = json.load(sys.stdin)
    try:
        answer = CALLS[message["call"]](message)
    except Exception as error:  # whatever it is, it is an answer
        answer = {"error": f"{type(error).__name__}: {error}"}
    json.dump({"cob_plugin": 1, **answer}, sys.stdout)


if __name__ == "__main__":
    main()
