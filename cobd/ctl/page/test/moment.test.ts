import assert from "node:assert/strict";
import { test } from "node:test";
import { chartOfPlan, chartOfReplay } from "../src/gantt";
import { eventsOf, momentOf, PHASES, standing, stepped, tableAt } from "../src/moment";
import { FAILED, MOVING, SETTLED, Table, UNKNOWN, WAITING } from "../src/table";
import type { Plan, ReplayEntry } from "../src/wire";

let lamport = 0;
const entry = (ms: number, event: string, cob?: string, more: Partial<ReplayEntry> = {}): ReplayEntry => ({
  offset_ns: ms * 1e6,
  ts_ns: (1000 + ms) * 1e6,
  host: (cob ?? "n1").split("/")[0]!,
  seq: lamport,
  lamport: lamport++,
  event,
  ok: null,
  ...(cob === undefined ? {} : { cob }),
  ...more,
});
const start = (ms: number, cob: string, from: string, to: string, more: Partial<ReplayEntry> = {}) => entry(ms, "start", cob, { from, to, ...more });
const end = (ms: number, cob: string, from: string, to: string, ok = true, detail = "") => entry(ms, "end", cob, { from, to, ok, detail });

/** A journal: a failed attempt, a wait, an object that restarts, an object that still runs. */
const journal = (): ReplayEntry[] => [
  entry(0, "go", undefined, { facts: { by: "ann" } }),
  entry(5, "activate"),
  start(10, "n1/db", "up", "down"),
  start(12, "n10/log", "off", "on"),
  end(30, "n1/db", "up", "down", false, "exit status 1\nmore"),
  end(35, "n10/log", "off", "on"),
  start(40, "n1/db", "up", "down", { attempt: 2 }),
  end(60, "n1/db", "up", "down"),
  start(61, "n2/app", "old", "new", { waited: [{ of: "n1/db@down", ns: 50e6 }] }),
  end(70, "n2/app", "old", "new"),
  start(75, "n1/db", "down", "up"),
  end(90, "n1/db", "down", "up"),
  start(95, "n2/tail", "off", "on"),
];

test("an object goes through all phases", () => {
  const chart = chartOfReplay(journal(), 120);
  const db = chart.rows.find((row) => row.cob === "n1/db")!;
  const at = (time: number) => {
    const { phase, state, since } = standing(db, time);
    return [phase, state, since];
  };
  assert.deepEqual(at(9), ["not begun", "up", undefined]);
  assert.deepEqual(at(10), ["running", "up → down", 10]);
  assert.deepEqual(at(30), ["failed", "up", 30]);
  assert.deepEqual(at(40), ["running", "up → down", 40]);
  assert.deepEqual(at(60), ["waiting", "down", 60]);
  assert.deepEqual(at(75), ["running", "down → up", 75]);
  assert.deepEqual(at(90), ["done", "up", 90]);
  assert.equal(standing(db, 31).detail, "exit status 1\nmore");
  const app = chart.rows.find((row) => row.cob === "n2/app")!;
  assert.equal(standing(app, 10).phase, "not begun");
  assert.deepEqual(standing(app, 11), { cob: "n2/app", phase: "waiting", state: "old", waits: ["n1/db@down"], detail: "" });
  const tail = chart.rows.find((row) => row.cob === "n2/tail")!;
  assert.equal(standing(tail, 120).phase, "running");
});

test("the states at each event are those of the journal read until then", () => {
  const entries = journal();
  const chart = chartOfReplay(entries, 120);
  for (const time of [...eventsOf(chart), 33, 61.5, 99]) {
    // The journal entry by entry: the last entry of an object decides.
    const states = new Map<string, string>();
    for (const one of entries) {
      if (!one.cob || one.offset_ns / 1e6 > time) continue;
      if (one.event === "start") states.set(one.cob, `${one.from} → ${one.to}`);
      if (one.event === "end") states.set(one.cob, one.ok ? one.to! : one.from!);
    }
    const { standings } = momentOf(chart, time);
    for (const { cob, state, phase } of standings) {
      const first = entries.find((one) => one.cob === cob && one.event === "start")!;
      assert.equal(state, states.get(cob) ?? first.from, `${cob} at ${time}`);
      assert.equal(phase === "running", state.includes("→"), `${cob} at ${time}`);
    }
  }
});

test("objects are counted by phase and host, each once", () => {
  const chart = chartOfReplay(journal(), 120);
  const { phases, hosts } = momentOf(chart, 20);
  assert.deepEqual(Object.fromEntries(PHASES.map((name, at) => [name, phases[at]])), {
    done: 0, running: 2, waiting: 1, failed: 0, "not begun": 1,
  });
  assert.deepEqual(hosts.map(({ host }) => host), ["n1", "n2", "n10"]);
  assert.deepEqual(hosts[1]!.phases, [0, 0, 1, 0, 1]);
  for (const time of eventsOf(chart)) {
    const found = momentOf(chart, time);
    const sum = (list: number[]) => list.reduce((all, one) => all + one, 0);
    assert.equal(sum(found.phases), chart.rows.length);
    assert.equal(sum(found.hosts.map((one) => sum(one.phases))), chart.rows.length);
  }
});

test("steps go from event to event and stay at the ends", () => {
  const chart = chartOfReplay(journal(), 120);
  const events = eventsOf(chart);
  assert.deepEqual(events, [0, 5, 10, 11, 12, 30, 35, 40, 60, 61, 70, 75, 90, 95, 120]);
  const there = [0];
  while (there.at(-1) !== 120) there.push(stepped(events, there.at(-1)!, 1));
  assert.deepEqual(there, events);
  assert.equal(stepped(events, 120, 1), 120);
  assert.equal(stepped(events, 50, 1), 60);
  assert.equal(stepped(events, 50, -1), 40);
  assert.equal(stepped(events, 0, -1), 0);
});

test("an interrupted object of a forecast waits between its transitions", () => {
  const plan = {
    critical_path: [],
    transitions: [
      { id: 0, cob: "n1/a", from: "up", to: "down", begin_us: 0, end_us: 1000 },
      { id: 1, cob: "n1/a", from: "down", to: "up", begin_us: 5000, end_us: 9000 },
    ],
    interrupted: [{ cob: "n1/a", begin_us: 0, end_us: 9000, in_place: false }],
    forecast: { end_us: 9000 },
  } as unknown as Plan;
  const row = chartOfPlan(plan).rows[0]!;
  assert.deepEqual([0, 1, 5, 9].map((time) => standing(row, time).phase), ["running", "waiting", "running", "done"]);
  assert.deepEqual(standing(row, 3).waits, []);
});

test("the objects of the cluster get the states of a moment", () => {
  const objects = new Table({
    id: ["n1/db", "n2/app", "n10/log", "n3/still"],
    kinds: ["noop"],
    kind: [0, 0, 0, 0],
    states: ["up", "down"],
    state: [0, 0, 0, 0],
    target: [0, 0, 0, 0],
    class: [0, 0, 0, 0],
    flags: [1, 0, 0, 2],
    since_ms: [7, 7, 7, 7],
    waits: { "3": [0] },
  });
  const chart = chartOfReplay(journal(), 120);
  const at = (time: number) => {
    const table = tableAt(objects, chart, time);
    return table.ids.map((_, index) => [table.cls[index], table.stateName(table.state[index]!)]);
  };
  const still = [UNKNOWN, "no transition in this switch"];
  assert.deepEqual(at(11), [[MOVING, "up → down"], [WAITING, "old"], [UNKNOWN, "off, not begun"], still]);
  assert.deepEqual(at(30), [[FAILED, "up"], [WAITING, "old"], [MOVING, "off → on"], still]);
  assert.deepEqual(at(90), [[SETTLED, "up"], [SETTLED, "new"], [SETTLED, "on"], still]);
  const table = tableAt(objects, chart, 11);
  assert.deepEqual([...table.waits], [[1, [0]]]);
  assert.deepEqual([table.flags, table.index("n10/log")], [[0, 0, 0, 0], 2]);
  // The present stays as it is.
  assert.deepEqual([objects.cls, objects.flags, objects.states, [...objects.waits]], [[0, 0, 0, 0], [1, 0, 0, 2], ["up", "down"], [[3, [0]]]]);
});
