import assert from "node:assert/strict";
import { test } from "node:test";
import { partsOf } from "../src/conflict";
import { kindOf } from "../src/hunks";

test("a text with conflict marks has common lines and sides", () => {
  const text = "a\nb\n<<<<<<< on this host\nv = 77\n||||||| applied before\nv = 3\n=======\nv = 4\nw = 1\n>>>>>>> wanted\nc\n";
  assert.deepEqual(partsOf(text), [
    { common: ["a", "b"] },
    { host: ["v = 77"], base: ["v = 3"], model: ["v = 4", "w = 1"] },
    { common: ["c"] },
  ]);
});

test("a text without complete marks is no conflict", () => {
  assert.equal(partsOf("a\nb\n"), null);
  assert.equal(partsOf("<<<<<<< here\na\n=======\n"), null);
});

test("lines of a unified diff", () => {
  assert.deepEqual(["+++ b/x", "--- a/x", "@@ -1 +1 @@", "+a", "-a", " a", "======="].map(kindOf), [
    "file", "file", "place", "plus", "minus", "", "conflict-mark",
  ]);
});
