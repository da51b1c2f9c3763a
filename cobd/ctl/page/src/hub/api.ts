// Requests to the hub. The token of the session stays in this tab: no other page and no other tab can send it.
import { effect, signal } from "@preact/signals";
import { Refusal } from "../refusal";
import { here, setParams } from "../route";
import { ownWords, userOf } from "./texts";
import type { Fault, Whoami } from "./wire";

const STORED = "cob-hub-token";
const TENANT = "cob-hub-tenant";
const LEFT = "cob-hub-left";

/** A refusal with the faults of a model. */
export class Refused extends Refusal {
  constructor(
    status: number,
    message: string,
    hint: string,
    readonly faults: Fault[],
  ) {
    super(status, message, hint);
  }
}

/** The user of the session; `null`: nobody is logged in; `undefined`: it is not known yet. */
export const me = signal<Whoami | null | undefined>(undefined);
/** The tenant that a super administrator looks at. */
export const tenant = signal(sessionStorage.getItem(TENANT) ?? "");

export function setTenant(name: string): void {
  tenant.value = name;
  sessionStorage.setItem(TENANT, name);
  const { params } = here.value;
  if (params.has("tenant") && params.get("tenant") !== name) {
    const other = new URLSearchParams(params);
    other.set("tenant", name);
    setParams(other);
  }
}

/** A super administrator looks at the tenant of the address; an empty name: at all tenants. */
export function followTenant(): void {
  effect(() => {
    const name = here.value.params.get("tenant");
    if (me.value?.tenant === null && name !== null && name !== tenant.peek()) setTenant(name);
  });
}

/** The parameter of an address that leads a super administrator to a tenant. */
export function ofTenant(name: string): Record<string, string> {
  return me.value?.tenant === null ? { tenant: name } : {};
}

/** The user whose session has ended by itself, for the next log-in. */
export const ended = signal("");

function end(): void {
  sessionStorage.removeItem(STORED);
  me.value = null;
}

export async function request(method: string, path: string, body?: unknown, abort?: AbortSignal): Promise<Response> {
  const token = sessionStorage.getItem(STORED);
  const headers = new Headers(body === undefined ? {} : { "content-type": "application/json" });
  if (token) headers.set("authorization", `Bearer ${token}`);
  const init: RequestInit = { method, headers, cache: "no-store", credentials: "omit" };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (abort) init.signal = abort;
  const response = await fetch(`/v1/${path}`, init).catch((error: unknown) => {
    if (abort?.aborted) throw error;
    throw new Refused(0, "the hub does not answer", "The page tries again. Jobs go on without the hub.", []);
  });
  if (response.ok) return response;
  const said: { error?: string; hint?: string; faults?: Fault[] } = await response.json().catch(() => ({}));
  if (response.status === 401 && path !== "sessions" && !path.startsWith("log-ins/")) {
    if (me.value) ended.value = ownWords(me.value);
    end();
  }
  throw new Refused(response.status, said.error ?? `the hub answered ${response.status}`, said.hint ?? "", said.faults ?? []);
}

/** The path with its query; a super administrator's with the chosen tenant, unless the query has another or an empty one. */
export function path(parts: string[], query: Record<string, string> = {}): string {
  const words = new URLSearchParams(query);
  if (me.value?.tenant === null && !words.has("tenant")) words.set("tenant", tenant.value);
  if (!words.get("tenant")) words.delete("tenant");
  const text = words.toString();
  return parts.map(encodeURIComponent).join("/") + (text ? `?${text}` : "");
}

export async function get<T>(parts: string[], query: Record<string, string> = {}, abort?: AbortSignal): Promise<T> {
  return (await (await request("GET", path(parts, query), undefined, abort)).json()) as T;
}

export async function send<T>(method: string, parts: string[], body: unknown, query: Record<string, string> = {}): Promise<T> {
  const response = await request(method, path(parts, query), body);
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

/** Finds out who is logged in. */
export async function look(): Promise<void> {
  if (!sessionStorage.getItem(STORED)) {
    me.value = null;
    return;
  }
  me.value = (await (await request("GET", "whoami")).json()) as Whoami;
}

export async function logIn(name: string, password: string): Promise<void> {
  const response = await request("POST", "sessions", { user: userOf(name), password });
  sessionStorage.setItem(STORED, ((await response.json()) as { token: string }).token);
  ended.value = "";
  await look();
}

/** The log-ins at providers of identities. */
export async function logIns(): Promise<string[]> {
  const all = (await (await request("GET", "log-ins")).json()) as { name: string }[];
  return all.map((one) => one.name);
}

/** Leaves the page for a provider of identities, which leads back to it. */
export async function leave(name: string, of: string): Promise<void> {
  const response = await request("POST", path(["log-ins", name]), of ? { tenant: of } : {});
  const { url, state } = (await response.json()) as { url: string; state: string };
  sessionStorage.setItem(LEFT, JSON.stringify({ name, state }));
  location.assign(url);
}

/** Ends the log-in with which a provider of identities leads back to the page. */
export async function comeBack(): Promise<void> {
  const words = new URLSearchParams(location.search);
  const state = words.get("state");
  if (state === null) return;
  const left = JSON.parse(sessionStorage.getItem(LEFT) ?? "null") as { name: string; state: string } | null;
  sessionStorage.removeItem(LEFT);
  // The address has words that count once.
  history.replaceState(null, "", location.pathname + location.hash);
  // A foreign page could lead here with the log-in of another person.
  if (left?.state !== state) throw new Refused(0, "this log-in was not begun in this tab", "Begin the log-in again.", []);
  const code = words.get("code");
  if (code === null) {
    const because = words.get("error_description") ?? words.get("error") ?? "no reason";
    throw new Refused(0, `${left.name} refuses the log-in: ${because}`, "Begin the log-in again.", []);
  }
  const response = await request("POST", path(["log-ins", left.name, "session"]), { state, code });
  sessionStorage.setItem(STORED, ((await response.json()) as { token: string }).token);
  ended.value = "";
}

export async function logOut(): Promise<void> {
  try {
    await request("DELETE", "session");
  } finally {
    end();
  }
}
