import assert from "node:assert/strict";
import { test } from "node:test";
import { filterOf, FLAGS, noFilter, paramsOf, select, sortPlaces, Table } from "../src/table";
import type { Columns } from "../src/wire";

function columns(): Columns {
  return {
    id: ["n1/db/config", "n1/db/server", "n2/app/server", "n2/db"],
    kinds: ["file-tree", "service"],
    kind: [0, 1, 1, 1],
    states: ["present", "up", "down"],
    state: [0, 1, 2, -1],
    target: [0, 1, 1, 1],
    class: [0, 0, 2, 5],
    flags: [FLAGS.drift, 0, 0, FLAGS.stuck],
    since_ms: [100, 200, 300, 50],
    waits: { "2": [1] },
  };
}

test("a delta changes rows, adds names of states, and replaces waits", () => {
  const table = new Table(columns());
  assert.deepEqual(table.counts(), [2, 0, 1, 0, 0, 1]);
  table.addStates(["failed"]);
  table.apply([
    [2, 3, 1, 3, 0, 900, []],
    [1, 2, 1, 2, 0, 901, [0]],
    [99, 0, 0, 0, 0, 0, []],
  ]);
  assert.equal(table.stateName(table.state[2]!), "failed");
  assert.deepEqual(table.counts(), [1, 0, 1, 1, 0, 1]);
  assert.equal(table.waits.has(2), false);
  assert.deepEqual(table.waits.get(1), [0]);
  assert.equal(table.index("n2/app/server"), 2);
  assert.equal(table.index("n9/x"), -1);
  assert.equal(table.stateName(-1), "unknown");
});

test("filters by class, flag, host, kind, service and words", () => {
  const table = new Table(columns());
  const found = (change: object) => select(table, { ...noFilter(), ...change });
  assert.deepEqual(found({}), [0, 1, 2, 3]);
  assert.deepEqual(found({ classes: [2, 5] }), [2, 3]);
  assert.deepEqual(found({ flags: FLAGS.drift }), [0]);
  assert.deepEqual(found({ host: "n2" }), [2, 3]);
  assert.deepEqual(found({ host: "n9" }), []);
  assert.deepEqual(found({ kind: "file-tree" }), [0]);
  assert.deepEqual(found({ rest: "db" }), [0, 1, 3]);
  assert.deepEqual(found({ rest: "db/server" }), [1]);
  assert.deepEqual(found({ text: "SERVER up" }), [1]);
  assert.deepEqual(found({ person: true }), [3]);
});

test("a filter survives the address", () => {
  const filter = { classes: [3, 2], flags: FLAGS.stuck | FLAGS.drift, host: "n1", kind: "service", text: "a b", rest: "db", person: true };
  assert.deepEqual(filterOf(paramsOf(filter)), filter);
  assert.deepEqual(filterOf(new URLSearchParams("class=nonsense&flag=what")), noFilter());
});

test("sorts problems first, and keeps the order of ids", () => {
  const table = new Table(columns());
  assert.deepEqual(sortPlaces(table, [0, 1, 2, 3], "problem", false), [3, 2, 0, 1]);
  assert.deepEqual(sortPlaces(table, [0, 1, 2, 3], "problem", true), [0, 1, 2, 3]);
  assert.deepEqual(sortPlaces(table, [0, 1, 2, 3], "since", false), [2, 1, 0, 3]);
  assert.deepEqual(sortPlaces(table, [0, 1, 2, 3], "kind", true), [1, 2, 3, 0]);
});

test("ten thousand rows are filtered and sorted quickly", () => {
  const size = 10_000;
  const big = columns();
  big.id = Array.from({ length: size }, (_, at) => `n${at % 200}/s/${at}`);
  for (const name of ["kind", "state", "target", "class", "flags", "since_ms"] as const) big[name] = big.id.map((_, at) => at % 2);
  const table = new Table(big);
  const begin = performance.now();
  sortPlaces(table, select(table, { ...noFilter(), text: "s/1 up" }), "problem", false);
  assert.ok(performance.now() - begin < 500);
});
