import assert from "node:assert/strict";
import { test } from "node:test";
import { chartOfPlan, chartOfReplay, extended, scaleOf, segments, withForecast, type Chart } from "../src/gantt";
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

test("pairs starts and ends, and shows attempts, failures and waits", () => {
  const chart = chartOfReplay([
    entry(0, "go", undefined, { facts: { by: "ann" } }),
    entry(5, "activate"),
    entry(10, "start", "n1/db", { from: "up", to: "down", attempt: 1 }),
    entry(30, "end", "n1/db", { from: "up", to: "down", ok: false, detail: "exit status 1" }),
    entry(40, "start", "n1/db", { from: "up", to: "down", attempt: 2 }),
    entry(60, "end", "n1/db", { from: "up", to: "down", ok: true }),
    entry(61, "start", "n2/app", { from: "down", to: "up", waited: [{ of: "n1/db@down", ns: 50e6 }] }),
  ]);
  assert.equal(chart.by, "ann");
  assert.equal(chart.failures, 1);
  assert.equal(chart.running, 1);
  assert.deepEqual(chart.rows.map((row) => row.cob), ["n1/db", "n2/app"]);
  assert.deepEqual(chart.rows[0]!.bars.map((bar) => [bar.begin, bar.end, bar.ok, bar.attempt]), [[10, 30, false, 1], [40, 60, true, 2]]);
  assert.equal(chart.rows[0]!.bars[0]!.detail, "exit status 1");
  assert.deepEqual(chart.rows[1]!.waits, [{ of: "n1/db@down", begin: 11, end: 61 }]);
  assert.equal(chart.rows[1]!.bars[0]!.ok, null);
  assert.equal(chart.origin, 1000);
});

test("an end without a start changes nothing", () => {
  assert.deepEqual(chartOfReplay([entry(3, "end", "n1/a", { ok: true })]).rows, []);
  assert.deepEqual(chartOfReplay([]).rows, []);
});

test("the critical path follows the causes back from the last end", () => {
  const run = (cob: string, begin: number, end: number, waited: string[] = []) => [
    entry(begin, "start", cob, { from: "a", to: "b", waited: waited.map((of) => ({ of, ns: 1e6 })) }),
    entry(end, "end", cob, { from: "a", to: "b", ok: true }),
  ];
  const entries = [
    ...run("n1/slow", 0, 100),
    ...run("n1/fast", 0, 20),
    ...run("n2/app", 101, 150, ["n1/fast@b", "n1/slow@b"]),
    ...run("n3/alone", 0, 140),
  ].sort((a, b) => a.offset_ns - b.offset_ns);
  const critical = chartOfReplay(entries).rows.filter((row) => row.bars.some((bar) => bar.critical)).map((row) => row.cob);
  assert.deepEqual(critical.sort(), ["n1/slow", "n2/app"]);
});

test("idle time longer than a tenth of the whole is collapsed", () => {
  const chart: Chart = {
    rows: [{ cob: "a", waits: [], bars: [bar(0, 100), bar(1000, 1100), bar(1150, 1200)] }],
    origin: 0, end: 1200, activated: [], by: "", failures: 0, running: 0,
  };
  const parts = segments(chart);
  assert.deepEqual(parts, [
    { begin: 0, end: 100, idle: false },
    { begin: 100, end: 1000, idle: true },
    { begin: 1000, end: 1200, idle: false },
  ]);
  const scale = scaleOf(parts, 330, 30);
  assert.equal(scale.x(0), 0);
  assert.equal(scale.x(100), 100);
  assert.equal(scale.x(1000), 130);
  assert.equal(scale.x(1200), 330);
  assert.ok(Math.abs(scale.time(scale.x(1077)) - 1077) < 1e-6);
  assert.ok(scale.ticks.every((tick) => tick <= 100 || tick >= 1000));
});

test("entries after a quiet minute belong to the switch until its end", () => {
  const replay = [entry(0, "go"), entry(10, "start", "n1/a", { generation: 4 })];
  const history = [
    { ...replay[1]!, generation: 4 },
    entry(100_000, "end", "n1/a", { generation: 4, ok: true }),
    entry(100_001, "start", "n1/b", { generation: 5 }),
    entry(900_000, "start", "n1/c", { generation: 4 }),
  ].map(({ offset_ns: _, ...rest }) => rest);
  const all = extended(replay, history, 4, (1000 + 200_000) * 1e6);
  assert.deepEqual(all.map((one) => [one.event, one.offset_ns / 1e6]), [["go", 0], ["start", 10], ["end", 100_000]]);
  assert.deepEqual(extended([], history, 4, Infinity), []);
});

test("an empty chart has a scale", () => {
  const parts = segments({ rows: [], origin: 0, end: 0, activated: [], by: "", failures: 0, running: 0 });
  assert.equal(Number.isFinite(scaleOf(parts, 500, 20).x(0)), true);
});

test("a forecast marks the critical path and the interruption", () => {
  const plan = {
    critical_path: [1],
    transitions: [
      { id: 0, cob: "n1/a", from: "up", to: "down", begin_us: 0, end_us: 1000 },
      { id: 1, cob: "n1/a", from: "down", to: "up", begin_us: 5000, end_us: 9000 },
    ],
    interrupted: [{ cob: "n1/a", begin_us: 0, end_us: 9000, in_place: false }],
    forecast: { end_us: 9000 },
  } as unknown as Plan;
  const chart = chartOfPlan(plan);
  assert.equal(chart.end, 9);
  assert.deepEqual(chart.rows[0]!.bars.map((one) => one.critical), [false, true]);
  assert.deepEqual(chart.rows[0]!.waits, [{ of: "", begin: 0, end: 9 }]);
});

test("a running switch is compared with its forecast from the activation on", () => {
  const chart = chartOfReplay([entry(0, "go"), entry(5, "activate"), entry(6, "start", "n1/a", { from: "up", to: "down" })], 8);
  const plan = {
    critical_path: [], interrupted: [], forecast: { end_us: 9000 },
    transitions: [
      { id: 0, cob: "n1/a", from: "up", to: "down", begin_us: 0, end_us: 1000 },
      { id: 1, cob: "n1/b", from: "down", to: "up", begin_us: 2000, end_us: 9000 },
    ],
  } as unknown as Plan;
  const both = withForecast(chart, plan);
  assert.deepEqual(both.rows.map((row) => [row.cob, row.bars.length, row.planned]), [
    ["n1/a", 1, [{ to: "down", begin: 5, end: 6 }]],
    ["n1/b", 0, [{ to: "up", begin: 7, end: 14 }]],
  ]);
  assert.equal(both.end, 14);
});

function bar(begin: number, end: number) {
  return { from: "a", to: "b", begin, end, ok: true, attempt: 1, critical: false, detail: "" };
}
