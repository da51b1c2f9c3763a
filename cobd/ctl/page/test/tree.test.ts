import assert from "node:assert/strict";
import { test } from "node:test";
import { Viewport } from "../src/draw/viewport";
import { matrixOf, refresh } from "../src/matrix";
import { Table } from "../src/table";
import { flatten, parentOf } from "../src/tree";

test("the tree follows needs and dependents, also in circles", () => {
  const needs = { out: [[1], [2], []], into: [[], [0], [1]] };
  assert.deepEqual(flatten([0, 1], new Set(), needs).map((row) => row.index), [0, 1]);
  const rows = flatten([0], new Set(["0", "0>n1", "0>n1>b0"]), needs);
  assert.deepEqual(
    rows.map((row) => [row.index, row.level, row.relation, row.position, row.of]),
    [
      [0, 1, "", 1, 1],
      [1, 2, "needs", 1, 1],
      [2, 3, "needs", 1, 2],
      [0, 3, "needed by", 2, 2],
      [1, 4, "needs", 1, 1],
    ],
  );
  assert.equal(parentOf(rows, 3), 1);
  assert.equal(parentOf(rows, 0), 0);
});

test("the matrix has a cell for each object, or the most urgent object of a service", () => {
  const table = new Table({
    id: ["n10/db/config", "n10/db/server", "n2/db/server"],
    kinds: ["x"],
    kind: [0, 0, 0],
    states: [],
    state: [-1, -1, -1],
    target: [-1, -1, -1],
    class: [0, 3, 1],
    flags: [0, 0, 0],
    since_ms: [0, 0, 0],
    waits: {},
  });
  const objects = matrixOf(table, false);
  assert.deepEqual(objects.names, ["db/config", "db/server"]);
  assert.deepEqual(objects.hosts.map((host) => table.hosts[host]), ["n2", "n10"]);
  assert.equal(objects.cells[0]![0], undefined);
  assert.deepEqual(objects.cells[1]![1], { index: 1, count: 1 });
  const services = matrixOf(table, true);
  assert.deepEqual(services.names, ["db"]);
  assert.deepEqual(services.cells[1]![0], { index: 1, count: 2 });
  table.apply([[1, -1, -1, 0, 0, 0, []], [0, -1, -1, 2, 0, 0, []]]);
  refresh(services, table);
  assert.equal(services.cells[1]![0]!.index, 0);
});

test("a viewport keeps the point under the pointer while it scales", () => {
  const view = new Viewport(0.1, 4);
  view.fit({ x: 0, y: 0, width: 2000, height: 1000 }, 1000, 1000, 0);
  assert.equal(view.scale, 0.5);
  const before = view.world({ x: 300, y: 200 });
  view.zoom(2, { x: 300, y: 200 });
  const after = view.world({ x: 300, y: 200 });
  assert.ok(Math.hypot(before.x - after.x, before.y - after.y) < 1e-9);
  view.zoom(1000, { x: 0, y: 0 });
  assert.equal(view.scale, 4);
  view.centre({ x: 10, y: 10 }, 100, 100);
  assert.deepEqual(view.screen({ x: 10, y: 10 }), { x: 50, y: 50 });
});
