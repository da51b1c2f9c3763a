#!/usr/bin/env python3
"""What of T - T* the starts of processes cost: T* with the first checks as actions of their own.

Before a daemon moves anything of a new generation it looks at where it is, with a process for each change object;
critical_path.py knows nothing of that. Here each change object first has an action that lasts as long as it really took,
from the first activation anywhere until its first check was on record. What is left beyond this T* is the ordering
itself: messages, journals, and waiting for a processor between an action and the next.

  ballet_checks.py BALLET_FOLDER CASE PHASE SITES RELEASE HISTORY GENERATION
"""
import contextlib
import io
import json
import sys

ballet, case, phase, sites, release, history, generation = sys.argv[1:]
sys.path.insert(0, ballet)
import critical_path  # noqa: E402
from make_model import expand, load, start_states  # noqa: E402

events = []
with open(history, encoding="utf-8") as file:
    for line in file:
        event = json.loads(line)
        if event.get("generation") == int(generation) and event["event"] in ("activate", "check", "start", "end"):
            events.append(event)
first = min(event["ts_ns"] for event in events)
last = max(event["ts_ns"] for event in events if event["event"] == "end" and event.get("ok", True))
begun, checked, spans = {}, {}, {}
for event in sorted(events, key=lambda event: event["ts_ns"]):
    cob, hop = event.get("cob"), (event.get("cob"), event.get("from"), event.get("to"))
    if event["event"] == "start":
        begun[hop] = event["ts_ns"]
        checked.setdefault(cob, None)  # a check after its first action is no first check
    elif event["event"] == "check":
        checked.setdefault(cob, (event["ts_ns"] - first) / 1e6)
    elif event["event"] == "end" and hop in begun and event.get("ok", True):
        spans[hop] = (event["ts_ns"] - begun[hop]) / 1e6

data = load(case)
cobs = expand(data, int(sites), release)
start = start_states(data, cobs, phase)
for name, cob in cobs.items():
    for edge in cob["transitions"]:
        edge["ms"] = spans.get((name, edge["from"], edge["to"]), edge["ms"])
    if checked.get(name) is not None:
        look = {"from": "not looked at", "to": start[name], "ms": checked[name], "needs": [], "of": []}
        cob["transitions"].append(look)
        start[name] = "not looked at"
with contextlib.redirect_stdout(io.StringIO()):
    total, path = critical_path.longest_path(cobs, start)
hops = sum(1 for one, next_ in zip(path, path[1:]) if one[2].split("/")[0] != next_[2].split("/")[0])
looks = [ms for ms in checked.values() if ms is not None]
beyond = (last - first) / 1e6 - total
print(f"with {len(looks)} first checks, the last on record after {max(looks, default=0):.0f} ms, T* is {total / 1000:.4f} s: "
      f"beyond it {beyond:.1f} ms in all, {beyond / len(path):.2f} ms an action ({len(path)} on the path, {hops} hops)")
