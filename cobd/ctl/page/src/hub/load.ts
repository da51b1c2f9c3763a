// Answers of the hub that a view shows, asked for again while the page is visible.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { useLoad, type Loaded } from "../use-load";
import { get, me, tenant } from "./api";

/** Rises when something was changed by this page. */
export const changes = signal(0);
export const changed = (): void => {
  changes.value += 1;
};

/** An answer of the hub. With `every`, it is asked for again after so many milliseconds; an empty list asks nothing. */
export function useHub<T>(parts: string[], query: Record<string, string> = {}, every = 0): Loaded<T> {
  const [round, setRound] = useState(0);
  const asks = useRef(0);
  useEffect(() => {
    if (every === 0 || parts.length === 0) return;
    const timer = setInterval(() => document.hidden || asks.current > 0 || setRound((before) => before + 1), every);
    return () => clearInterval(timer);
  }, [every, parts.join("/")]);
  const words = new URLSearchParams(query).toString();
  const key = parts.length === 0 ? "" : `${me.value?.user} ${tenant.value} ${parts.join("/")}?${words}`;
  // A new round begins after the answer, however slow it is.
  const load = (abort: AbortSignal) => {
    asks.current += 1;
    return get<T>(parts, query, abort).finally(() => (asks.current -= 1));
  };
  return useLoad<T>(key, load, `${round} ${changes.value}`, 0);
}
