// The stream of the server: snapshot, deltas, and a new try after a loss.
import { hasKey, request } from "./api";
import { Refusal } from "./refusal";
import { isSilent, link, now, receive, SILENCE_MS } from "./store";
import type { Message } from "./wire";

/** A hidden tab gives its connection back after this time: browsers allow six connections to a server. */
const HIDDEN_MS = 60_000;
const LONGEST_DELAY_MS = 15_000;

let current: AbortController | null = null;
let wake: (() => void) | null = null;

/** Opens the stream again at once. */
export function retryNow(): void {
  wake?.();
}

/** Keeps the stream open as long as the page is there. */
export async function keepOpen(): Promise<void> {
  watchVisibility();
  addEventListener("online", retryNow);
  // Timers stand still while a computer sleeps; its clock does not.
  setInterval(() => {
    if (link.value.state === "live" && isSilent()) current?.abort();
  }, 1000);
  for (let failures = 0; ; ) {
    if (!hasKey() || link.value.state === "locked") {
      link.value = { state: "locked" };
      return;
    }
    await visible();
    let why = "the server ended the stream";
    try {
      await read(() => {
        failures = 0;
        link.value = { state: "live" };
      });
    } catch (error) {
      if (error instanceof Refusal && error.status === 401) return;
      why = error instanceof Refusal ? error.message : "the server does not answer";
    }
    const before = link.value;
    const since = before.state === "lost" ? before.since : now.value;
    const delay = failures === 0 ? 250 : Math.min(LONGEST_DELAY_MS, 500 * 2 ** failures) * (0.75 + Math.random() / 2);
    failures++;
    link.value = { state: "lost", since, why, retry: Date.now() + delay };
    await pause(delay);
  }
}

/** Reads the stream to its end. */
async function read(arrived: () => void): Promise<void> {
  const controller = new AbortController();
  current = controller;
  let timer = 0;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => controller.abort(), SILENCE_MS);
  };
  heard();
  try {
    const response = await request("/api/stream", { signal: controller.signal });
    const reader = response.body!.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line === "") continue;
        if (!receive(JSON.parse(line) as Message)) {
          controller.abort();
          return;
        }
        arrived();
      }
    }
  } finally {
    clearTimeout(timer);
    current = null;
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}

function visible(): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const seen = () => {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", seen);
      resolve();
    };
    document.addEventListener("visibilitychange", seen);
  });
}

function watchVisibility(): void {
  let timer = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(() => current?.abort(), HIDDEN_MS);
    else retryNow();
  });
}
