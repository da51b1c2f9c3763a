// The picture of the cluster: the last snapshot with all deltas since, as signals.
import { computed, signal } from "@preact/signals";
import { Table } from "./table";
import type { Cluster, Graph, Host, Message, OrderState } from "./wire";

export type Link =
  | { state: "connecting" }
  | { state: "live" }
  | { state: "lost"; since: number; why: string; retry: number }
  | { state: "locked" };

/** The name and role under which the hosts know this operator. */
export const operator = signal("");
export const link = signal<Link>({ state: "connecting" });
export const cluster = signal<Cluster | null>(null);
export const hosts = signal<Host[]>([]);
export const table = signal<Table | null>(null);
export const graph = signal<Graph | null>(null);
export const orders = signal<OrderState[]>([]);
/** Grows with every change of an object's row. */
export const tick = signal(0);

/** The server's clock, in milliseconds. It stands still while the picture is old. */
export const now = signal(Date.now());
let serverMinusLocal = 0;

function setClock(serverNow: number): void {
  serverMinusLocal = serverNow - Date.now();
  now.value = serverNow;
}

/** The server sends a line at least every 10 s; a longer silence is a loss. */
export const SILENCE_MS = 25_000;
/** When the last message arrived, by the clock of this computer. */
let heard = 0;

/** Whether no message arrived for too long; so it is after the sleep of a computer, too. */
export function isSilent(): boolean {
  return Date.now() - heard > SILENCE_MS;
}

setInterval(() => {
  if (link.value.state === "live" && !isSilent()) now.value = Date.now() + serverMinusLocal;
}, 1000);

let seq = -1;

/** Applies a message. False: a message is missing, so the stream must be opened again. */
export function receive(message: Message): boolean {
  heard = Date.now();
  if (message.kind === "snapshot") {
    table.value = new Table(message.cobs);
    cluster.value = message.cluster;
    hosts.value = message.hosts;
    graph.value = message.graph;
    orders.value = message.orders;
    tick.value++;
    seq = message.seq;
    setClock(message.cluster.now_ms ?? Date.now());
    return true;
  }
  if (message.kind === "idle") {
    setClock(message.now_ms);
    return message.seq <= seq;
  }
  if (message.seq > seq + 1) return false;
  seq = message.seq;
  if (message.cluster) {
    cluster.value = message.cluster;
    if (message.cluster.now_ms !== undefined) setClock(message.cluster.now_ms);
  }
  if (message.hosts) hosts.value = replaced(hosts.value, message.hosts, (host) => host.name);
  if (message.orders) orders.value = replaced(orders.value, message.orders, (order) => order.id);
  if (message.states) table.value?.addStates(message.states);
  if (message.cobs && table.value) {
    table.value.apply(message.cobs);
    tick.value++;
  }
  return true;
}

/** The list with some elements replaced by their key; unknown elements are added at the end. */
export function replaced<T, K>(list: T[], news: T[], key: (element: T) => K): T[] {
  const by = new Map(news.map((element) => [key(element), element]));
  const kept = list.map((element) => {
    const next = by.get(key(element));
    by.delete(key(element));
    return next ?? element;
  });
  return [...kept, ...by.values()];
}

/** Objects by class; recomputed after each change. */
export const counts = computed(() => {
  tick.value;
  return table.value?.counts() ?? [0, 0, 0, 0, 0, 0];
});

export const hostNames = computed(() => new Set(hosts.value.map((host) => host.name)));

/** What each object needs, and what needs it, by place. */
export const needs = computed(() => {
  const size = table.value?.size ?? 0;
  const out: number[][] = Array.from({ length: size }, () => []);
  const into: number[][] = Array.from({ length: size }, () => []);
  const pairs = graph.value?.needs ?? [];
  for (let at = 0; at + 1 < pairs.length; at += 2) {
    const from = pairs[at]!;
    const to = pairs[at + 1]!;
    out[from]?.push(to);
    into[to]?.push(from);
  }
  return { out, into };
});

/** Whether a name is a host or an object of the picture. */
export function isKnown(name: string): boolean {
  return hostNames.value.has(name) || (table.value?.index(name) ?? -1) >= 0;
}
