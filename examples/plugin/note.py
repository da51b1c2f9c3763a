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
    return {"states": ["down", "up", "outdated"]}


def note_of(message):
    """Where it is noted what was there before, and what this has written since."""
    return os.path.join(message["state_dir"], "before.json")


def check(message):
    if not os.path.exists(note_of(message)):
        return {"state": "down"}
    config = message["config"]
    found = read(config["file"]).get(config["key"])
    if found == config["value"]:
        return {"state": "up"}
    # As long as there is a note there is something to do: a way back that was killed is not `down` yet.
    return {"state": "outdated", "difference": f"{config['key']} is {json.dumps(found)}"}


def transition(message):
    if message["to"] == "down":
        return revert(message)
    config = message["config"]
    key, value = config["key"], config["value"]
    everything = read(config["file"])
    # What was there is noted before anything is changed, and only the first time.
    note = read(note_of(message)) or {"was": everything.get(key), "was_there": key in everything, "written": []}
    if value not in note["written"]:
        note["written"].append(value)
        write(note_of(message), note)
    everything[key] = value
    write(config["file"], everything)
    return {"done": True}


def revert(message):
    if not os.path.exists(note_of(message)):
        # Nothing was changed, or it was taken back already.
        return {"done": True}
    key, note = message["config"]["key"], read(note_of(message))
    everything = read(message["config"]["file"])
    # What somebody else has written since stays.
    if everything.get(key) in note["written"]:
        if note["was_there"]:
            everything[key] = note["was"]
        else:
            everything.pop(key, None)
        write(message["config"]["file"], everything)
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
