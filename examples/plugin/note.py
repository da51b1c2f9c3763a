#!/usr/bin/env python3
"""A plug-in in Python: sets one key of a JSON file, and takes it back by `revert`.

What was there is noted in the folder of the change object, on the disk, before anything is changed: a reply with
`saved` would be lost if this were killed between its change and its reply.
"""

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


def note_of(message):
    """Where it is noted what was there before."""
    return os.path.join(message["state_dir"], "before.json")


def is_up(message):
    config = message["config"]
    return os.path.exists(note_of(message)) and read(config["file"]).get(config["key"]) == config["value"]


def check(message):
    if is_up(message):
        return {"state": "up"}
    config = message["config"]
    found = read(config["file"]).get(config["key"])
    return {"state": "down", "difference": f"{config['key']} is {json.dumps(found)}"}


def transition(message):
    if is_up(message):
        return {"done": True}
    config = message["config"]
    everything = read(config["file"])
    write(note_of(message), {"was": everything.get(config["key"]), "was_there": config["key"] in everything})
    everything[config["key"]] = config["value"]
    write(config["file"], everything)
    return {"done": True}


def revert(message):
    if not is_up(message):
        # Nothing was changed, or it was taken back already.
        return {"done": True}
    config = message["config"]
    everything, before = read(config["file"]), read(note_of(message))
    if before["was_there"]:
        everything[config["key"]] = before["was"]
    else:
        everything.pop(config["key"], None)
    write(config["file"], everything)
    os.remove(note_of(message))
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
