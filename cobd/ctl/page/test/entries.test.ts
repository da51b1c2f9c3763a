import assert from "node:assert/strict";
import { test } from "node:test";
import { entryClass, eventWords, filtered, merged } from "../src/entries";
import type { HistoryEntry } from "../src/wire";

const entry = (event: string, more: Partial<HistoryEntry> = {}): HistoryEntry => ({
  ts_ns: 1, host: "n1", seq: 1, lamport: 1, event, ok: null, ...more,
});

test("the history is filtered by sort and words, newest first", () => {
  const all = [
    entry("go", { facts: { by: "ann" }, detail: "to generation 3, by ann" }),
    entry("start", { cob: "n1/db" }),
    entry("end", { cob: "n1/db", ok: false, attempt: 2 }),
    entry("drift", { cob: "n2/conf", host: "n2" }),
  ];
  assert.deepEqual(filtered(all, [], "").map((one) => one.event), ["drift", "end", "start", "go"]);
  assert.deepEqual(filtered(all, ["failures"], "").map((one) => one.event), ["end"]);
  assert.deepEqual(filtered(all, ["orders", "drift"], "").map((one) => one.event), ["drift", "go"]);
  assert.deepEqual(filtered(all, ["transitions"], "n1/db start").map((one) => one.event), ["start"]);
  assert.deepEqual(filtered(all, [], "ANN").map((one) => one.event), ["go"]);
  assert.equal(eventWords(all[2]!), "end failed, attempt 2");
  assert.deepEqual(all.map(entryClass), [null, null, 3, 2]);
});

test("the same entry of several hosts is shown once", () => {
  const all = [
    entry("go", { host: "n2", detail: "to generation 3", ts_ns: 9e9 }),
    entry("end", { host: "n1", cob: "n1/a", ts_ns: 8e9 }),
    entry("go", { host: "n1", detail: "to generation 3", ts_ns: 7e9 }),
    entry("go", { host: "n1", detail: "to generation 2", ts_ns: 6e9 }),
    entry("go", { host: "n1", detail: "to generation 3", ts_ns: 5e9 }),
  ];
  assert.deepEqual(merged(all).map((one) => [one.entry.event, one.hosts]), [
    ["go", ["n2", "n1"]], ["end", ["n1"]], ["go", ["n1"]], ["go", ["n1"]],
  ]);
});
