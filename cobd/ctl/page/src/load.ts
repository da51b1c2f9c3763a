// Questions to `cobctl` from a view.
import { ask } from "./api";
import { useLoad, type Loaded } from "./use-load";
import type { Answer } from "./wire";

export { useLoad, type Loaded } from "./use-load";

/** Asks for a document of `cobctl`; a failure of the command is the error. */
export function useAsk<T>(
  name: string,
  params: Record<string, string> | null,
  refresh: unknown = 0,
  least = 1000,
): Loaded<Answer<T>> {
  const key = params === null ? "" : `${name}?${new URLSearchParams(params)}`;
  const loaded = useLoad<Answer<T>>(key, (signal) => ask<T>(name, params ?? {}, signal), refresh, least);
  const failure = loaded.value?.failure;
  if (!failure) return loaded;
  return { ...loaded, error: [failure.error, ...failure.causes].join(": "), hints: failure.hints };
}
