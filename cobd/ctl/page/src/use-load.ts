// Requests of a view: cancelled when the view is left or asks for another thing.
import { useEffect, useRef, useState } from "preact/hooks";
import { Refusal } from "./refusal";

export interface Loaded<T> {
  value: T | undefined;
  error: string;
  hints: string[];
  loading: boolean;
  again: () => void;
}

/**
 * Loads a value for a key. Another key forgets the value; another `refresh` keeps the value until the new value is
 * there, and asks at most once in `least` milliseconds. An empty key loads nothing.
 */
export function useLoad<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  refresh: unknown = 0,
  least = 1000,
): Loaded<T> {
  const [state, setState] = useState<{ key: string; value?: T; error?: string; hints?: string[] }>({ key: "" });
  const [round, setRound] = useState(0);
  const last = useRef({ key: "", at: 0 });
  useEffect(() => {
    if (key === "") return;
    const controller = new AbortController();
    const wait = last.current.key === key ? Math.max(0, last.current.at + least - Date.now()) : 0;
    const timer = setTimeout(() => {
      last.current = { key, at: Date.now() };
      load(controller.signal).then(
        (value) => controller.signal.aborted || setState({ key, value }),
        (error: unknown) => {
          if (controller.signal.aborted) return;
          const hints = error instanceof Refusal && error.hint ? [error.hint] : [];
          const text = error instanceof Error ? error.message : String(error);
          setState((before) => ({ key, error: text, hints, ...(before.key === key && "value" in before ? { value: before.value as T } : {}) }));
        },
      );
    }, wait);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [key, refresh, round]);
  const mine = state.key === key;
  return {
    value: mine ? state.value : undefined,
    error: mine ? (state.error ?? "") : "",
    hints: mine ? (state.hints ?? []) : [],
    loading: key !== "" && (!mine || (state.value === undefined && !state.error)),
    again: () => setRound((before) => before + 1),
  };
}
