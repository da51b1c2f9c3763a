// The change objects of the cluster as columns: applies deltas, filters and sorts. Pure, without the browser.
import type { Columns, Row } from "./wire";

export const CLASSES = ["settled", "moving", "waiting", "failed", "stopped", "unknown"] as const;
export type ClassName = (typeof CLASSES)[number];
export const SETTLED = 0;
export const MOVING = 1;
export const WAITING = 2;
export const FAILED = 3;
export const STOPPED = 4;
export const UNKNOWN = 5;

export const FLAGS = { drift: 1, stuck: 2, observed: 4, departs: 8 } as const;
export type FlagName = keyof typeof FLAGS;

/** The order of problems: first the classes that need a person. */
const URGENCY = [5, 3, 2, 0, 4, 1];

export class Table {
  readonly ids: string[];
  readonly kinds: string[];
  readonly kind: number[];
  readonly states: string[];
  readonly state: number[];
  readonly target: number[];
  readonly cls: number[];
  readonly flags: number[];
  readonly since: number[];
  readonly waits: Map<number, number[]>;
  /** The host of an object as an index into `hosts`. */
  readonly host: number[];
  readonly hosts: string[];
  private readonly places: Map<string, number>;

  constructor(columns: Columns) {
    this.ids = columns.id;
    this.kinds = columns.kinds;
    this.kind = columns.kind;
    this.states = [...columns.states];
    this.state = columns.state;
    this.target = columns.target;
    this.cls = columns.class;
    this.flags = columns.flags;
    this.since = columns.since_ms;
    this.waits = new Map(Object.entries(columns.waits).map(([index, list]) => [Number(index), list]));
    this.places = new Map(this.ids.map((id, index) => [id, index]));
    const hosts = new Map<string, number>();
    this.host = this.ids.map((id) => {
      const name = hostOf(id);
      const known = hosts.get(name);
      if (known !== undefined) return known;
      hosts.set(name, hosts.size);
      return hosts.size - 1;
    });
    this.hosts = [...hosts.keys()];
  }

  /** The same objects, for states of their own. */
  copy(): Table {
    const { ids, states, state, target, cls, flags, since, waits } = this;
    const own = { states: [...states], state: [...state], target: [...target], cls: [...cls], flags: [...flags], since: [...since] };
    return Object.assign(Object.create(Table.prototype) as Table, this, own, { ids, waits: new Map(waits) });
  }

  get size(): number {
    return this.ids.length;
  }

  /** The place of an object, or -1. */
  index(id: string): number {
    return this.places.get(id) ?? -1;
  }

  stateName(state: number): string {
    return this.states[state] ?? "unknown";
  }

  addStates(names: string[]): void {
    this.states.push(...names);
  }

  /** Applies the changed rows. Rows beyond the table are ignored: a new snapshot follows when objects are added. */
  apply(rows: Row[]): void {
    for (const [index, state, target, cls, flags, since, waits] of rows) {
      if (index < 0 || index >= this.size) continue;
      this.state[index] = state;
      this.target[index] = target;
      this.cls[index] = cls;
      this.flags[index] = flags;
      this.since[index] = since;
      if (waits.length > 0) this.waits.set(index, waits);
      else this.waits.delete(index);
    }
  }

  /** How many objects are in each class. */
  counts(): number[] {
    const counts = CLASSES.map(() => 0);
    for (const cls of this.cls) counts[cls] = (counts[cls] ?? 0) + 1;
    return counts;
  }

  countFlag(flag: number): number {
    return this.flags.reduce((sum, flags) => sum + (flags & flag ? 1 : 0), 0);
  }
}

export function hostOf(id: string): string {
  const slash = id.indexOf("/");
  return slash < 0 ? id : id.slice(0, slash);
}

/** The part of an id after the host. */
export function restOf(id: string): string {
  const slash = id.indexOf("/");
  return slash < 0 ? "" : id.slice(slash + 1);
}

export interface Filter {
  classes: number[];
  flags: number;
  host: string;
  kind: string;
  /** Words, all of which the id, kind or state contains. */
  text: string;
  /** Objects of this service: the part of the id after the host. */
  rest: string;
  /** Only objects that need a person. */
  person: boolean;
}

export function noFilter(): Filter {
  return { classes: [], flags: 0, host: "", kind: "", text: "", rest: "", person: false };
}

/** Reads a filter from the parameters of an address. Unknown names are ignored. */
export function filterOf(params: URLSearchParams): Filter {
  const names = (params.get("class") ?? "").split(",").filter(Boolean);
  const flags = (params.get("flag") ?? "").split(",").filter((name): name is FlagName => name in FLAGS);
  return {
    classes: names.map((name) => CLASSES.indexOf(name as ClassName)).filter((cls) => cls >= 0),
    flags: flags.reduce((sum, name) => sum | FLAGS[name], 0),
    host: params.get("host") ?? "",
    kind: params.get("kind") ?? "",
    text: params.get("q") ?? "",
    rest: params.get("name") ?? "",
    person: params.get("person") === "1",
  };
}

/** The parameters of an address for a filter; empty parts are left out. */
export function paramsOf(filter: Filter): URLSearchParams {
  const params = new URLSearchParams();
  if (filter.classes.length > 0) params.set("class", filter.classes.map((cls) => CLASSES[cls] ?? "").join(","));
  const flags = (Object.keys(FLAGS) as FlagName[]).filter((name) => filter.flags & FLAGS[name]);
  if (flags.length > 0) params.set("flag", flags.join(","));
  if (filter.host) params.set("host", filter.host);
  if (filter.kind) params.set("kind", filter.kind);
  if (filter.rest) params.set("name", filter.rest);
  if (filter.person) params.set("person", "1");
  if (filter.text) params.set("q", filter.text);
  return params;
}

/** Whether no time will bring an object further: it failed, is stuck, or is in conflict. */
export function needsPerson(table: Table, index: number): boolean {
  if (table.cls[index] === FAILED || ((table.flags[index] ?? 0) & FLAGS.stuck) !== 0) return true;
  return table.state[index] !== -1 && table.stateName(table.state[index] ?? -1) === "conflict";
}

/** The places of the objects that pass the filter, in the order of the table. */
export function select(table: Table, filter: Filter): number[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const host = filter.host ? table.hosts.indexOf(filter.host) : -1;
  const kind = filter.kind ? table.kinds.indexOf(filter.kind) : -1;
  if ((filter.host && host < 0) || (filter.kind && kind < 0)) return [];
  const found: number[] = [];
  for (let index = 0; index < table.size; index++) {
    if (filter.classes.length > 0 && !filter.classes.includes(table.cls[index] ?? UNKNOWN)) continue;
    if (filter.flags && !((table.flags[index] ?? 0) & filter.flags)) continue;
    if (host >= 0 && table.host[index] !== host) continue;
    if (kind >= 0 && table.kind[index] !== kind) continue;
    if (filter.person && !needsPerson(table, index)) continue;
    const id = table.ids[index] ?? "";
    if (filter.rest && restOf(id) !== filter.rest && !restOf(id).startsWith(`${filter.rest}/`)) continue;
    if (words.length > 0) {
      const state = table.state[index] ?? -1;
      const text = `${id} ${table.kinds[table.kind[index] ?? -1] ?? ""} ${table.stateName(state)}`.toLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
    }
    found.push(index);
  }
  return found;
}

export const SORTS = ["problem", "id", "kind", "state", "since"] as const;
export type Sort = (typeof SORTS)[number];

/** Sorts places; equal values stay in the order of the ids. `down` reverses the order of the values only. */
export function sortPlaces(table: Table, places: number[], sort: Sort, down: boolean): number[] {
  if (sort === "id") return down ? places.toReversed() : places;
  if (sort === "problem") {
    // A bucket for each class is much faster than a comparison.
    const buckets: number[][] = URGENCY.map(() => []);
    for (const index of places) buckets[URGENCY[table.cls[index] ?? UNKNOWN] ?? 5]!.push(index);
    return (down ? buckets.toReversed() : buckets).flat();
  }
  const value = (index: number): number | string => {
    switch (sort) {
      case "kind":
        return table.kinds[table.kind[index] ?? -1] ?? "";
      case "state":
        return table.stateName(table.state[index] ?? -1);
      case "since":
        return -(table.since[index] ?? 0);
    }
  };
  const keyed = places.map((index) => ({ index, key: value(index) }));
  const sign = down ? -1 : 1;
  keyed.sort((a, b) => (a.key < b.key ? -sign : a.key > b.key ? sign : a.index - b.index));
  return keyed.map(({ index }) => index);
}
