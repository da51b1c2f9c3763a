// Entries of the history: their sort, and a filter. Pure.
import type { HistoryEntry } from "./wire";

export const SORTS_OF_ENTRIES = ["failures", "orders", "transitions", "drift"] as const;
export type EntrySort = (typeof SORTS_OF_ENTRIES)[number];

/** Whether an entry is of a sort. An entry may be of several sorts. */
export function isOf(entry: HistoryEntry, sort: EntrySort): boolean {
  switch (sort) {
    case "failures":
      return entry.ok === false || entry.event === "failed";
    case "orders":
      return entry.facts?.by !== undefined;
    case "transitions":
      return entry.event === "start" || entry.event === "end";
    case "drift":
      return entry.event === "drift";
  }
}

/** The entries of any of the sorts (none: all) that contain all words; the newest first. */
export function filtered(entries: HistoryEntry[], sorts: EntrySort[], text: string): HistoryEntry[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = entries.filter((entry) => {
    if (sorts.length > 0 && !sorts.some((sort) => isOf(entry, sort))) return false;
    if (words.length === 0) return true;
    const all = [entry.host, entry.cob, entry.event, entry.from, entry.to, entry.detail].join(" ").toLowerCase();
    return words.every((word) => all.includes(word));
  });
  return found.reverse();
}

/** An entry, and the hosts that have the same entry at about the same time. */
export interface Merged {
  entry: HistoryEntry;
  hosts: string[];
}

const SAME_TIME_NS = 60e9;

/** Entries about whole hosts with the same event and detail, within a minute, become a single entry. Newest first. */
export function merged(entries: HistoryEntry[]): Merged[] {
  const found: Merged[] = [];
  const latest = new Map<string, Merged>();
  for (const entry of entries) {
    if (entry.cob === undefined) {
      const key = `${entry.event} ${entry.generation} ${entry.detail ?? ""}`;
      const same = latest.get(key);
      if (same && !same.hosts.includes(entry.host) && Math.abs(same.entry.ts_ns - entry.ts_ns) < SAME_TIME_NS) {
        same.hosts.push(entry.host);
        continue;
      }
      const own = { entry, hosts: [entry.host] };
      latest.set(key, own);
      found.push(own);
    } else found.push({ entry, hosts: [entry.host] });
  }
  return found;
}

/** An event in words: `end failed, attempt 2`. */
export function eventWords(entry: HistoryEntry): string {
  const failed = entry.ok === false ? " failed" : "";
  const attempt = (entry.attempt ?? 1) > 1 ? `, attempt ${entry.attempt}` : "";
  return entry.event + failed + attempt;
}

/** The class of the mark of an entry; null: no mark. */
export function entryClass(entry: HistoryEntry): number | null {
  if (isOf(entry, "failures")) return 3;
  if (entry.event === "end") return 0;
  if (entry.event === "drift") return 2;
  return null;
}
