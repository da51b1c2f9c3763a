import assert from "node:assert/strict";
import { test } from "node:test";
import { address, parse } from "../src/route";
import { count, ofTheme, pieces, span } from "../src/words";

test("durations", () => {
  assert.equal(span(0), "0 ms");
  assert.equal(span(1234), "1.2 s");
  assert.equal(span(59_999), "59 s");
  assert.equal(span(61_000), "1 min 1 s");
  assert.equal(span(7_500_000), "2 h 5 min");
  assert.equal(span(2 * 86_400_000), "2 d");
  assert.equal(span(-5), "0 ms");
});

test("numbers and nouns", () => {
  assert.equal(count(1, "host"), "1 host");
  assert.equal(count(10_000, "object"), "10,000 objects");
  assert.equal(count(2, "dependency"), "2 dependencies");
});

test("names and code in texts", () => {
  const known = (name: string) => ["n1", "n1/db", "n2/app/server"].includes(name);
  assert.deepEqual(pieces("n1/db waits for n2/app/server.", known), [
    { text: "n1/db", as: "name" },
    { text: " waits for ", as: "plain" },
    { text: "n2/app/server", as: "name" },
    { text: ".", as: "plain" },
  ]);
  assert.deepEqual(pieces("see `cobctl output n1/db`, then n11", known), [
    { text: "see ", as: "plain" },
    { text: "cobctl output n1/db", as: "code" },
    { text: ", then n11", as: "plain" },
  ]);
});

test("addresses of views", () => {
  assert.equal(address("cob", "n1/a b"), "#/cob/n1/a%20b");
  assert.deepEqual({ ...parse("#/cob/n1/a%20b?x=1"), params: undefined }, { view: "cob", rest: "n1/a b", params: undefined });
  assert.equal(parse("#/objects?class=failed").params.get("class"), "failed");
  assert.equal(parse("").view, "");
});

test("the colour of a theme, for drawings", () => {
  assert.equal(ofTheme(" light-dark(#fff, #0e1318)", false), "#fff");
  assert.equal(ofTheme("light-dark(#fff,#0e1318)", true), "#0e1318");
  assert.equal(ofTheme(" #123456 ", true), "#123456");
});
