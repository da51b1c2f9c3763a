// Requests to the server: the secret, questions, orders.
import { Refusal } from "./refusal";
import { link } from "./store";
import type { Answer } from "./wire";

const STORED = "cob-page-key";
let key = "";

/** Takes the secret from the fragment, keeps it for this tab, and removes it from the address. */
export function takeKey(): void {
  const found = /^#key=([^&]+)/.exec(location.hash);
  if (found?.[1]) {
    sessionStorage.setItem(STORED, found[1]);
    history.replaceState(null, "", `${location.pathname}#/`);
  }
  key = sessionStorage.getItem(STORED) ?? "";
}

export function hasKey(): boolean {
  return key !== "";
}

export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  headers.set("authorization", `Bearer ${key}`);
  const response = await fetch(path, { ...init, headers, cache: "no-store", credentials: "omit" });
  if (response.ok) return response;
  if (response.status === 401) link.value = { state: "locked" };
  const said: { error?: string; hint?: string } = await response.json().catch(() => ({}));
  throw new Refusal(response.status, said.error ?? `the server answered ${response.status}`, said.hint ?? "");
}

async function json<T>(path: string, params: Record<string, string>, signal?: AbortSignal): Promise<T> {
  const query = new URLSearchParams(params).toString();
  const response = await request(query ? `${path}?${query}` : path, signal ? { signal } : {});
  return (await response.json()) as T;
}

/** Asks for a document of `cobctl NAME --json`. */
export function ask<T>(name: string, params: Record<string, string> = {}, signal?: AbortSignal): Promise<Answer<T>> {
  return json(`/api/ask/${name}`, params, signal);
}

export function get<T>(path: string, params: Record<string, string> = {}, signal?: AbortSignal): Promise<T> {
  return json(path, params, signal);
}

export type Order =
  | { order: "switch"; to: number; now?: boolean }
  | { order: "rollback"; to?: number }
  | { order: "pause" }
  | { order: "resume" }
  | { order: "cancel"; generation: number }
  | { order: "retry"; what?: string }
  | { order: "stop" | "start" | "restart"; what: string }
  | { order: "check" }
  | { order: "resolve"; cob: string; path?: string; keep: "model" | "host" }
  | { order: "publish"; message: string };

/** Gives an order; its progress comes in the stream. */
export async function give(order: Order): Promise<number> {
  const response = await request("/api/orders", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(order),
  });
  return ((await response.json()) as { id: number }).id;
}

/** The words of an order, as a command. */
export function wordsOf(order: Order): string {
  switch (order.order) {
    case "switch":
      return `cobctl switch ${order.to}${order.now ? " --now" : ""}`;
    case "rollback":
      return order.to === undefined ? "cobctl rollback" : `cobctl rollback ${order.to}`;
    case "cancel":
      return `cobctl cancel ${order.generation}`;
    case "retry":
      return order.what === undefined ? "cobctl retry --all" : `cobctl retry ${order.what}`;
    case "stop":
    case "start":
    case "restart":
      return `cobctl ${order.order} ${order.what}`;
    case "resolve":
      return `cobctl resolve ${order.cob}${order.path ? ` --path ${order.path}` : ""} ${order.keep === "model" ? "--theirs" : "--ours"}`;
    case "publish":
      return `cobgen generate --message '${order.message}'`;
    default:
      return `cobctl ${order.order}`;
  }
}

/** The order that a command asks for, if the page can give it. */
export function orderOf(command: string): Order | null {
  const [program, name, what, ...more] = command.trim().split(/\s+/);
  if (program !== "cobctl" || more.some((word) => word !== "--wait")) return null;
  const number = what !== undefined && /^\d+$/.test(what) ? Number(what) : undefined;
  switch (name) {
    case "switch":
      return number === undefined ? null : { order: "switch", to: number };
    case "rollback":
      return number === undefined ? (what === undefined ? { order: "rollback" } : null) : { order: "rollback", to: number };
    case "cancel":
      return number === undefined ? null : { order: "cancel", generation: number };
    case "retry":
      return what === undefined || what === "--all" ? { order: "retry" } : { order: "retry", what };
    case "stop":
    case "start":
    case "restart":
      return what === undefined ? null : { order: name, what };
    case "pause":
    case "resume":
    case "check":
      return what === undefined ? { order: name } : null;
    default:
      return null;
  }
}
