// The chart of a switch as data: rows, bars, waits, the critical path, and a time scale without idle time. Pure.
import type { HistoryEntry, Plan, ReplayEntry } from "./wire";

/** Times are milliseconds since the beginning of the switch. */
export interface Bar {
  from: string;
  to: string;
  begin: number;
  /** The end; of a running transition the end of the chart. */
  end: number;
  /** Null: no end is recorded yet. */
  ok: boolean | null;
  attempt: number;
  critical: boolean;
  detail: string;
}

export interface Wait {
  of: string;
  begin: number;
  end: number;
}

export interface ChartRow {
  cob: string;
  bars: Bar[];
  waits: Wait[];
  /** The transitions of the forecast that was asked for before the switch. */
  planned?: { to: string; begin: number; end: number }[];
}

export interface Chart {
  rows: ChartRow[];
  /** The time of the first entry, in milliseconds since 1970; 0 for a forecast. */
  origin: number;
  end: number;
  /** When each host activated the generation. */
  activated: { host: string; at: number }[];
  by: string;
  failures: number;
  running: number;
}

/** The object of a wait such as `n3/lb/server@down`. */
function objectOf(text: string): string {
  const at = text.lastIndexOf("@");
  return at < 0 ? text : text.slice(0, at);
}

/**
 * The replay with later entries of its generation. A replay ends after a quiet minute, but a switch may wait longer:
 * for the decision of a conflict, or for a retry. `until_ns`: the end of the switch.
 */
export function extended(replay: ReplayEntry[], history: HistoryEntry[], generation: number, until_ns: number): ReplayEntry[] {
  const first = replay[0];
  if (!first) return replay;
  const origin = first.ts_ns - first.offset_ns;
  const keyOf = (entry: HistoryEntry) => `${entry.host} ${entry.seq} ${entry.lamport} ${entry.event} ${entry.cob ?? ""}`;
  const known = new Set(replay.map(keyOf));
  const later = history.filter(
    (entry) => entry.generation === generation && entry.ts_ns >= origin && entry.ts_ns <= until_ns && !known.has(keyOf(entry)),
  );
  return [...replay, ...later.map((entry) => ({ ...entry, offset_ns: entry.ts_ns - origin }))];
}

/** The chart of a past or running switch from its replay. `until`: the end of running transitions. */
export function chartOfReplay(entries: ReplayEntry[], until = 0): Chart {
  const rows = new Map<string, ChartRow>();
  const open = new Map<string, Bar>();
  const activated: Chart["activated"] = [];
  const causes = new Map<Bar, string[]>();
  let end = 0;
  let by = "";
  const first = entries[0];
  const origin = first ? first.ts_ns / 1e6 - first.offset_ns / 1e6 : 0;
  const rowOf = (cob: string): ChartRow => {
    const row = rows.get(cob) ?? { cob, bars: [], waits: [] };
    rows.set(cob, row);
    return row;
  };
  for (const entry of entries) {
    const at = entry.offset_ns / 1e6;
    end = Math.max(end, at);
    if (entry.event === "activate") activated.push({ host: entry.host, at });
    if (by === "" && (entry.event === "go" || entry.event === "prepare")) by = entry.facts?.by ?? "";
    if (entry.cob === undefined) continue;
    if (entry.event === "start") {
      const waited = entry.waited ?? [];
      const bar: Bar = {
        from: entry.from ?? "",
        to: entry.to ?? "",
        begin: at,
        end: at,
        ok: null,
        attempt: entry.attempt ?? 1,
        critical: false,
        detail: entry.detail ?? "",
      };
      const row = rowOf(entry.cob);
      row.bars.push(bar);
      for (const { of, ns } of waited) row.waits.push({ of, begin: at - ns / 1e6, end: at });
      open.set(entry.cob, bar);
      causes.set(bar, [...waited.map(({ of }) => objectOf(of)), ...under(entry.detail)]);
    } else if (entry.event === "end") {
      const bar = open.get(entry.cob);
      if (!bar) continue;
      open.delete(entry.cob);
      bar.end = Math.max(bar.begin, at);
      bar.ok = entry.ok;
      if (entry.ok === false && entry.detail) bar.detail = entry.detail;
    }
  }
  if (open.size > 0) end = Math.max(end, until);
  for (const bar of open.values()) bar.end = end;
  const list = [...rows.values()].filter((row) => row.bars.length > 0);
  list.sort((a, b) => a.bars[0]!.begin - b.bars[0]!.begin || (a.cob < b.cob ? -1 : 1));
  markCritical(list, causes);
  const bars = list.flatMap((row) => row.bars);
  return {
    rows: list,
    origin,
    end,
    activated,
    by,
    failures: bars.filter((bar) => bar.ok === false).length,
    running: open.size,
  };
}

/** The objects in `under n2/app/server@down, n3/app/server@down`. */
function under(detail: string | undefined): string[] {
  const match = /\bunder (.*)$/.exec(detail ?? "");
  return match ? match[1]!.split(", ").map(objectOf) : [];
}

/** Marks the chain of transitions that ends last: each started after its cause ended. */
function markCritical(rows: ChartRow[], causes: Map<Bar, string[]>): void {
  const byCob = new Map(rows.map((row) => [row.cob, row.bars]));
  let last: { cob: string; bar: Bar } | undefined;
  for (const row of rows) for (const bar of row.bars) if (!last || bar.end > last.bar.end) last = { cob: row.cob, bar };
  while (last && !last.bar.critical) {
    last.bar.critical = true;
    const { cob, bar }: { cob: string; bar: Bar } = last;
    last = undefined;
    for (const name of [cob, ...(causes.get(bar) ?? [])]) {
      for (const other of byCob.get(name) ?? []) {
        // Clocks of hosts differ by some milliseconds.
        if (other === bar || other.critical || other.end > bar.begin + 5) continue;
        if (!last || other.end > last.bar.end) last = { cob: name, bar: other };
      }
    }
  }
}

/** The chart of a forecast. */
export function chartOfPlan(plan: Plan): Chart {
  const critical = new Set(plan.critical_path);
  const rows = new Map<string, ChartRow>();
  let end = 0;
  for (const one of plan.transitions) {
    const row = rows.get(one.cob) ?? { cob: one.cob, bars: [], waits: [] };
    rows.set(one.cob, row);
    row.bars.push({
      from: one.from,
      to: one.to,
      begin: one.begin_us / 1000,
      end: one.end_us / 1000,
      ok: true,
      attempt: 1,
      critical: critical.has(one.id),
      detail: "",
    });
    end = Math.max(end, one.end_us / 1000);
  }
  for (const row of rows.values()) {
    row.bars.sort((a, b) => a.begin - b.begin);
    const one = plan.interrupted.find((candidate) => candidate.cob === row.cob && !candidate.in_place);
    // An interrupted object is away between its transitions.
    if (one) row.waits.push({ of: "", begin: one.begin_us / 1000, end: (one.end_us ?? plan.forecast.end_us) / 1000 });
  }
  const list = [...rows.values()].sort((a, b) => a.bars[0]!.begin - b.bars[0]!.begin || (a.cob < b.cob ? -1 : 1));
  return { rows: list, origin: 0, end, activated: [], by: "", failures: 0, running: 0 };
}

/** The chart of a switch with the transitions of its forecast, which counts from the activation. */
export function withForecast(chart: Chart, plan: Plan): Chart {
  const shift = chart.activated.reduce((least, { at }) => Math.min(least, at), Infinity);
  const from = Number.isFinite(shift) ? shift : 0;
  const forecast = chartOfPlan(plan);
  const rows = new Map<string, ChartRow>(chart.rows.map((row) => [row.cob, { ...row }]));
  for (const { cob, bars } of forecast.rows) {
    const row = rows.get(cob) ?? { cob, bars: [], waits: [] };
    row.planned = bars.map(({ to, begin, end }) => ({ to, begin: begin + from, end: end + from }));
    rows.set(cob, row);
  }
  const first = (row: ChartRow) => row.bars[0]?.begin ?? row.planned?.[0]?.begin ?? 0;
  const list = [...rows.values()].sort((a, b) => first(a) - first(b) || (a.cob < b.cob ? -1 : 1));
  return { ...chart, rows: list, end: Math.max(chart.end, forecast.end + from) };
}

/** A part of the time; an idle part takes a fixed width. */
export interface Segment {
  begin: number;
  end: number;
  idle: boolean;
}

/** A gap without a running transition is idle if it is longer than this share of the whole. */
export const IDLE_SHARE = 0.1;

/** The parts of the time from 0 to the end of the chart: busy parts, and idle parts longer than a tenth of the whole. */
export function segments(chart: Chart): Segment[] {
  const spans = chart.rows.flatMap((row) => [...row.bars, ...(row.planned ?? [])].map(({ begin, end }) => ({ begin, end })));
  for (const { at } of chart.activated) spans.push({ begin: at, end: at });
  spans.sort((a, b) => a.begin - b.begin);
  const least = chart.end * IDLE_SHARE;
  const found: Segment[] = [];
  let from = Math.min(0, spans[0]?.begin ?? 0);
  let busyUntil = from;
  const idle = (until: number) => {
    if (until - busyUntil <= least || least <= 0) return;
    if (busyUntil > from) found.push({ begin: from, end: busyUntil, idle: false });
    found.push({ begin: busyUntil, end: until, idle: true });
    from = until;
  };
  for (const { begin, end } of spans) {
    idle(begin);
    busyUntil = Math.max(busyUntil, end);
  }
  idle(chart.end);
  const end = Math.max(chart.end, busyUntil);
  if (end > from || found.length === 0) found.push({ begin: from, end: Math.max(end, from), idle: false });
  return found;
}

export interface Scale {
  x: (time: number) => number;
  time: (x: number) => number;
  /** Times for marks of the axis, with their step. */
  ticks: number[];
  step: number;
}

/** A scale from times to a width in pixels: busy parts share the width, each idle part takes `gap` pixels. */
export function scaleOf(parts: Segment[], width: number, gap: number): Scale {
  const idle = parts.filter((part) => part.idle).length;
  const busy = parts.reduce((sum, part) => sum + (part.idle ? 0 : part.end - part.begin), 0);
  const perMs = busy > 0 ? Math.max(1, width - idle * gap) / busy : 1;
  const placed: (Segment & { left: number; width: number })[] = [];
  let left = 0;
  for (const part of parts) {
    const wide = part.idle ? gap : (part.end - part.begin) * perMs;
    placed.push({ ...part, left, width: wide });
    left += wide;
  }
  const x = (time: number): number => {
    const part = placed.find((candidate) => time <= candidate.end) ?? placed[placed.length - 1];
    if (!part) return 0;
    const long = part.end - part.begin;
    return part.left + (long > 0 ? ((time - part.begin) / long) * part.width : 0);
  };
  const time = (at: number): number => {
    const part = placed.find((candidate) => at <= candidate.left + candidate.width) ?? placed[placed.length - 1];
    if (!part) return 0;
    return part.begin + (part.width > 0 ? ((at - part.left) / part.width) * (part.end - part.begin) : 0);
  };
  const step = niceStep(90 / perMs);
  const ticks: number[] = [];
  for (const part of placed) {
    if (part.idle) continue;
    for (let at = Math.ceil(part.begin / step) * step; at <= part.end && ticks.length < 500; at += step) ticks.push(at);
  }
  return { x, time, ticks, step };
}

/** A round step of at least this many milliseconds. */
function niceStep(least: number): number {
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500];
  const seconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400];
  for (const step of [...steps, ...seconds.map((second) => second * 1000)]) if (step >= least) return step;
  return 86_400_000 * Math.ceil(least / 86_400_000);
}
