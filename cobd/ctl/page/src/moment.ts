// The states of all objects of a switch at one moment of it, from the data of its chart. Pure.
import type { Bar, Chart, ChartRow } from "./gantt";
import { FAILED, hostOf, MOVING, SETTLED, UNKNOWN, WAITING, type Table } from "./table";

export const PHASES = ["done", "running", "waiting", "failed", "not begun"] as const;
export type Phase = (typeof PHASES)[number];
/** The class of an object in each phase. */
export const PHASE_CLASS = [SETTLED, MOVING, WAITING, FAILED, UNKNOWN];

/** An object at a moment. */
export interface Standing {
  cob: string;
  phase: Phase;
  /** The state, or the two states of the running transition. */
  state: string;
  /** Since when, in milliseconds since the beginning of the switch. Absent: since before it. */
  since?: number;
  /** The objects and states that it waits for. */
  waits: string[];
  /** Why the last attempt failed. */
  detail: string;
}

export interface Moment {
  standings: Standing[];
  /** Objects by phase. */
  phases: number[];
  hosts: { host: string; phases: number[] }[];
}

/** The last transition that began until a time. */
function lastBar(row: ChartRow, time: number): Bar | undefined {
  let last: Bar | undefined;
  for (const bar of row.bars) if (bar.begin <= time) last = bar;
  return last;
}

/** An object at a time. A transition runs from its begin on, and is over at its end. */
export function standing(row: ChartRow, time: number): Standing {
  const last = lastBar(row, time);
  const found = { cob: row.cob, waits: [] as string[], detail: "" };
  if (last && (last.ok === null || time < last.end)) {
    return { ...found, phase: "running", state: `${last.from} → ${last.to}`, since: last.begin };
  }
  const waits = row.waits.filter((wait) => wait.begin <= time && time < wait.end);
  const more = row.bars.some((bar) => bar.begin > time);
  const named = waits.map((wait) => wait.of).filter(Boolean);
  if (last?.ok === false) {
    return { ...found, phase: "failed", state: last.from, since: last.end, waits: named, detail: last.detail };
  }
  const state = last ? last.to : (row.bars[0]?.from ?? "");
  const since = last ? { since: last.end } : {};
  // Between two transitions an object waits, also if no cause is recorded.
  if (waits.length > 0 || (last && more)) return { ...found, phase: "waiting", state, ...since, waits: named };
  return { ...found, phase: last ? "done" : "not begun", state, ...since };
}

/** All objects of the chart at a time, with their numbers by phase and host. */
export function momentOf(chart: Chart, time: number): Moment {
  const standings = chart.rows.map((row) => standing(row, time));
  const none = () => PHASES.map(() => 0);
  const phases = none();
  const byHost = new Map<string, number[]>();
  for (const { cob, phase } of standings) {
    const at = PHASES.indexOf(phase);
    const own = byHost.get(hostOf(cob)) ?? none();
    byHost.set(hostOf(cob), own);
    own[at]!++;
    phases[at]!++;
  }
  const { compare } = new Intl.Collator("en", { numeric: true });
  const hosts = [...byHost].map(([host, own]) => ({ host, phases: own })).sort((a, b) => compare(a.host, b.host));
  return { standings, phases, hosts };
}

/** The times at which something begins or ends, with both ends of the chart, in order. */
export function eventsOf(chart: Chart): number[] {
  const times = new Set<number>([0, chart.end]);
  for (const { at } of chart.activated) times.add(at);
  for (const row of chart.rows) {
    for (const bar of row.bars) {
      times.add(bar.begin);
      times.add(bar.end);
    }
    for (const wait of row.waits) times.add(wait.begin);
  }
  return [...times].filter((time) => time <= chart.end).sort((a, b) => a - b);
}

/** The next event after a time (`by` 1) or the last event before it (`by` -1); at the end the time stays. */
export function stepped(events: number[], time: number, by: 1 | -1): number {
  if (by > 0) return events.find((event) => event > time) ?? time;
  return events.findLast((event) => event < time) ?? time;
}

/** The objects with their states at a time of a switch. The chart knows only objects with transitions. */
export function tableAt(objects: Table, chart: Chart, time: number): Table {
  const table = objects.copy();
  const places = new Map(table.states.map((name, at) => [name, at]));
  const state = (name: string) => {
    const known = places.get(name) ?? table.states.push(name) - 1;
    places.set(name, known);
    return known;
  };
  const still = state("no transition in this switch");
  table.cls.fill(UNKNOWN);
  table.state.fill(still);
  table.target.fill(-1);
  table.flags.fill(0);
  table.since.fill(0);
  table.waits.clear();
  for (const row of chart.rows) {
    const at = table.index(row.cob);
    if (at < 0) continue;
    const found = standing(row, time);
    table.cls[at] = PHASE_CLASS[PHASES.indexOf(found.phase)]!;
    table.state[at] = state(found.phase === "not begun" ? `${found.state}, not begun` : found.state);
    const waits = found.waits.map((id) => table.index(id.split("@")[0]!)).filter((index) => index >= 0);
    if (waits.length > 0) table.waits.set(at, waits);
  }
  return table;
}
