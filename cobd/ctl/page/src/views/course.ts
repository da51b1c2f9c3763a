// The course of a switch, from the histories of its hosts.
import { useMemo } from "preact/hooks";
import { extended } from "../gantt";
import { useAsk, type Loaded } from "../load";
import type { Answer, HistoryEntry, Outcome, ReplayEntry } from "../wire";

export function outcomesOf(answer: { outcomes?: Outcome[] } | null | undefined): Outcome[] {
  return answer?.outcomes ?? [];
}

export interface Course {
  outcomes: Loaded<Answer<{ outcomes: Outcome[] }>>;
  replay: Loaded<Answer<ReplayEntry[]>>;
  outcome: Outcome | undefined;
  entries: ReplayEntry[];
}

/** Asks for the course of a switch; a missing number asks nothing. */
export function useCourse(number: number | null, refresh: unknown): Course {
  const outcomes = useAsk<{ outcomes: Outcome[] }>("outcomes", number === null ? null : {}, refresh, 3000);
  const replay = useAsk<ReplayEntry[]>("replay", number === null ? null : { generation: String(number) }, refresh, 2000);
  const outcome = outcomesOf(outcomes.value?.answer).findLast((one) => one.to === number);
  const answer = replay.value?.answer;
  const replayed = (Array.isArray(answer) ? answer : []).filter((entry) => typeof entry.event === "string");
  const last = replayed.reduce((most, entry) => Math.max(most, entry.ts_ns), 0);
  const until = outcome?.ended_ns ?? Infinity;
  const cut = replayed.length > 0 && outcome !== undefined && until > last + 1e9;
  const history = useAsk<HistoryEntry[]>("history", cut ? { limit: "2000" } : null, refresh, 3000);
  const later = history.value?.answer;
  const entries = useMemo(
    () => (cut && number !== null && Array.isArray(later) ? extended(replayed, later, number, until) : replayed),
    [answer, later, cut, until],
  );
  return { outcomes, replay, outcome, entries };
}
