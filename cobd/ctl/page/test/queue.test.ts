import assert from "node:assert/strict";
import { test } from "node:test";
import { actionWords, bestPriority, contentOf, EMPTY_RULE, filterOf, formOf, jobParts, numberOf, paramsOf, queryOf, selectionWords, stops, type JobFilter } from "../src/hub/queue";
import { offered, over, whole, type Template } from "../src/hub/template";
import { durationOf, secondsOf } from "../src/hub/texts";
import type { Rule, RuleContent } from "../src/hub/wire";

const none: JobFilter = { state: "", cluster: "", user: "", operation: "", since: "", pages: [] };
const roundTrip = (filter: JobFilter) => filterOf(new URLSearchParams(new URLSearchParams(paramsOf(filter)).toString()));

test("filters survive the address", () => {
  assert.deepEqual(paramsOf(none), {});
  for (const filter of [none, { ...none, state: "open" }, { state: "failed", cluster: "shop", user: "web/ann", operation: "resize", since: "7d", pages: [120, 70] }] as JobFilter[]) {
    assert.deepEqual(roundTrip(filter), filter);
  }
});

test("an address with wrong values is read as far as it is right", () => {
  const read = (text: string) => filterOf(new URLSearchParams(text));
  assert.deepEqual(read("state=flying&operation=fly&since=toString&cluster=%20shop%20"), { ...none, cluster: "shop" });
  for (const before of ["x", "-3", "70,120", "70,70", "1e400", "7,"]) assert.deepEqual(read(`before=${before}`), none, before);
});

test("the query asks for a job more than a page has", () => {
  assert.deepEqual(queryOf(none, 0), { limit: "51" });
  assert.deepEqual(queryOf({ ...none, state: "open", pages: [120, 70] }, 0), { open: "true", before: "70", limit: "51" });
  const all = queryOf({ state: "queued", cluster: "shop", user: "root", operation: "sync", since: "1h", pages: [] }, 3_600_007);
  assert.deepEqual(all, { state: "queued", cluster: "shop", user: "root", operation: "sync", since_ms: "7", limit: "51" });
});

test("whole numbers between bounds", () => {
  assert.deepEqual([" 19 ", "-20", "0"].map((text) => numberOf(text, -20, 19)), [19, -20, 0]);
  for (const wrong of ["", "20", "-21", "1.5", "1e1", "--1", "ten"]) assert.equal(numberOf(wrong, -20, 19), null, wrong);
  assert.deepEqual((["super-administrator", "administrator", "user"] as const).map(bestPriority), [-20, -10, 0]);
});

test("the jobs of a reason become numbers", () => {
  assert.deepEqual(jobParts("it waits for job 12 of the same cluster"), ["it waits for ", 12, " of the same cluster"]);
  assert.deepEqual(jobParts("the jobs of the rule job x wait"), ["the jobs of the rule job x wait"]);
});

const rule = (name: string, content: Partial<RuleContent>, tenant?: string): Rule => ({
  name,
  ...(tenant ? { tenant } : {}),
  content: { action: "pause", priority: 100, reason: "", jobs: {}, ...content },
});

test("rules in words", () => {
  assert.equal(selectionWords({}), "all jobs");
  assert.equal(selectionWords({ ids: [1], operations: ["create", "delete"], new_only: true }), "jobs with the number 1 for the operation create and delete ordered later");
  assert.equal(actionWords({ "rate-limit": 2 }), "run at most 2 of");
});

test("only rules that stop all jobs are announced", () => {
  assert.deepEqual(stops([rule("a", { jobs: { operations: ["create"] } }), rule("b", { action: "continue" }), rule("c", { action: { "rate-limit": 1 } }), rule("d", {})]), []);
  assert.deepEqual(stops([rule("freeze", { reason: "audit" })]), ["The rule freeze pauses all jobs: audit"]);
  const accept = rule("urgent", { action: "accept", jobs: { ids: [1] } });
  assert.deepEqual(stops([accept, rule("freeze", { action: "reject" }, "web"), rule("freeze", { jobs: { tenants: ["db"] } })]), [
    "The rule freeze pauses all jobs of the tenant db, except jobs that an earlier rule accepts.",
    "The rule web/freeze rejects all jobs of the tenant web.",
  ]);
  assert.deepEqual(stops([rule("all", { action: "accept" }), rule("late", {})]), [], "the first rule that matches applies");
});

test("a rule survives its form", () => {
  const content: RuleContent = {
    action: { "rate-limit": 3 },
    priority: 5,
    reason: "small steps",
    jobs: { ids: [1, 2], tenants: ["web"], users: ["web/ann"], clusters: ["web/shop"], operations: ["resize"], providers: ["process"], new_only: true },
  };
  assert.deepEqual(contentOf(formOf(content)), content);
  assert.deepEqual(contentOf(EMPTY_RULE), { action: "pause", priority: 100, reason: "", jobs: {} });
  assert.match(contentOf({ ...EMPTY_RULE, action: "rate-limit", most: "0" }) as string, /At most/);
  assert.match(contentOf({ ...EMPTY_RULE, priority: "-1" }) as string, /Order/);
  assert.match(contentOf({ ...EMPTY_RULE, ids: "1 two" }) as string, /Jobs/);
});

test("a template offers its own services and those that it inherits", async () => {
  const all: Record<string, Template> = {
    base: { defaults: { services: ["web"], provider: "metal", config: { a: 1 } }, compatibility: { services: ["web", "db"] } },
    logs: { includes: ["site"], defaults: { services: ["log"], config: { a: 2 } } },
    site: { description: "A site", parent: "base", includes: ["logs"], defaults: { services: ["web"] } },
  };
  const site = await whole("site", async (name) => all[name]!);
  assert.deepEqual(site.defaults, { services: ["web", "log"], provider: "metal", config: { a: 2 } });
  assert.equal(site.description, "A site");
  assert.deepEqual(offered(site, ["web", "db", "mail"]), ["web", "log", "db"]);
  assert.deepEqual(offered({ defaults: { services: ["web"] } }, ["db", "web"]), ["web", "db"], "no permitted ones: all");
  assert.deepEqual(offered(over({}, {}), []), []);
});

test("durations in the largest whole unit", () => {
  for (const text of ["7d", "36h", "90min", "61s"]) assert.equal(durationOf(secondsOf(text)!), text);
});
