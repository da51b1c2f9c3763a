import assert from "node:assert/strict";
import { test } from "node:test";
import { flow } from "../src/flow";

test("areas flow into lines, and nodes keep their places within an area", () => {
  const hosts = ["n1", "n1", "n2", "n3"];
  const graph = {
    needs: [],
    x: [1, 2, 11, 21],
    y: [1, 1, 1, 1],
    bands: [0, 10, 20].map((x, at) => ({ host: `n${at + 1}`, x, y: 0, width: 4, height: 3 })),
  };
  const placed = flow(graph, (index) => hosts[index]!, 0.1);
  assert.deepEqual(placed.x, [1, 2, 1, 1]);
  assert.ok(placed.y[3]! > placed.y[2]! && placed.y[2]! > placed.y[0]!);
  const wide = flow(graph, (index) => hosts[index]!, 100);
  assert.ok(wide.bands.every((band) => band.y === 0));
  assert.equal(flow({ ...graph, bands: [] }, () => "", 1).x, graph.x);
});
