import assert from "node:assert/strict";
import { test } from "node:test";
import { list, lossOf, machineLine, ofQuota, operationWords, quotaWords, secondsOf, stageLines, userOf, userWords } from "../src/hub/texts";
import type { Preview } from "../src/hub/wire";

const plan: Preview = {
  nodes: [],
  create: ["a-1", "a-2"],
  delete: ["a-3"],
  tasks: [
    { id: 1, node: "a-1", action: "create" },
    { id: 2, node: "a-2", action: "create" },
    { id: 3, node: "a-1", action: "start", service: "web" },
    { id: 4, node: "a-2", action: "start", service: "db" },
  ],
  stages: [[1, 2], [4, 3], [9]],
};

test("a stage names each action with its nodes", () => {
  assert.deepEqual(stageLines(plan), ["create on a-1 and a-2", "start db on a-2; start web on a-1", ""]);
});

test("a plan tells its machines", () => {
  assert.equal(machineLine(plan), "The plan creates 2 machines: a-1 and a-2, and deletes 1 machine: a-3.");
  assert.equal(machineLine({ ...plan, create: [], delete: [] }), "The plan creates and deletes no machines.");
});

test("long lists are cut", () => {
  assert.equal(list([]), "");
  assert.equal(list(["a"]), "a");
  assert.equal(list(["a", "b", "c"]), "a, b and c");
  assert.equal(list(["a", "b", "c", "d"], 3), "a, b and 2 more");
});

test("operations in words", () => {
  assert.equal(operationWords({ operation: "resize", nodes: 1 }), "resize to 1 node");
  assert.equal(operationWords({ operation: "services", add: ["web"], remove: ["db", "log"] }), "add web, remove db and log");
  assert.equal(operationWords({ operation: "stop", services: [] }), "stop all services");
  assert.equal(operationWords({ operation: "replace", node: "a-1" }), "replace a-1");
  assert.equal(operationWords({ operation: "sync" }), "sync");
  assert.equal(lossOf({ operation: "resize", nodes: 4 }, 3, { ...plan, delete: [] }), "");
  assert.equal(lossOf({ operation: "resize", nodes: 2 }, 3, { ...plan, delete: [] }), "It deletes machines.");
  assert.equal(lossOf({ operation: "resize", nodes: 4 }, 3, plan), "It deletes machines.", "the plan says it");
  assert.equal(lossOf({ operation: "services", add: ["web"], remove: [] }, 3, plan), "");
  assert.equal(lossOf({ operation: "configure", config: {} }, 3, plan), "It may interrupt services.");
});

test("a user with and without a tenant", () => {
  assert.deepEqual(userOf(" web/ann "), { tenant: "web", name: "ann" });
  assert.deepEqual(userOf("root"), { name: "root" });
  assert.deepEqual(userOf("a/b/c"), { tenant: "a", name: "b/c" });
  assert.equal(userWords({ tenant: "web", name: "ann" }), "web/ann");
});

test("durations and quotas", () => {
  assert.equal(secondsOf("36h"), 129_600);
  assert.equal(secondsOf(" 2 w "), 1_209_600);
  for (const wrong of ["", "h", "1.5h", "-3d", "3 months", "99999999d"]) assert.equal(secondsOf(wrong), null, wrong);
  assert.equal(ofQuota(3, 6), "3 of 6");
  assert.equal(ofQuota(3, undefined), "3");
  assert.equal(quotaWords({}), "no limits");
  assert.equal(quotaWords({ machines: 1, parallel_jobs: 2 }), "at most 1 machine, 2 jobs at a time");
});
