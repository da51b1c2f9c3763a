// A moment of a past switch, in the views that show the present else: the address has `switch` and `after`.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { TimeSlider } from "../draw/moment";
import { chartOfReplay, segments } from "../gantt";
import { eventsOf, tableAt } from "../moment";
import { Loading, Trouble } from "../parts";
import { address, here, setParams } from "../route";
import type { Table } from "../table";
import { useCourse } from "./course";

/** The objects at the moment of the address, with a bar to choose another moment. No bar: it is now. */
export function usePast(objects: Table): { shown: Table; bar: ComponentChildren } {
  const { params } = here.value;
  const number = /^\d+$/.test(params.get("switch") ?? "") ? Number(params.get("switch")) : null;
  const { replay, entries } = useCourse(number, 0);
  const chart = useMemo(() => chartOfReplay(entries, 0), [entries]);
  const parts = useMemo(() => segments(chart), [chart]);
  const events = useMemo(() => eventsOf(chart), [chart]);
  const given = Number(params.get("after") ?? chart.end);
  const time = Math.min(Math.max(0, given), chart.end);
  const isPast = number !== null && chart.rows.length > 0;
  const shown = useMemo(() => (isPast ? tableAt(objects, chart, time) : objects), [objects, chart, time, isPast]);
  if (number === null) return { shown, bar: null };
  const set = (after: number | null) => {
    const next = new URLSearchParams(here.value.params);
    next.delete("after");
    if (after === null) next.delete("switch");
    else next.set("after", String(after));
    setParams(next);
  };
  const bar = (
    <div class="past-bar" role="group" aria-label="Past moment">
      <span>
        The <a href={address("switch", String(number))}>switch to generation {number}</a>:
      </span>
      {isPast ? <TimeSlider chart={chart} parts={parts} events={events} time={time} onTime={(at) => set(at ?? chart.end)} /> : replay.loading ? <Loading /> : <Trouble error={replay.error || "the histories contain no transition of this switch"} hints={replay.hints} again={replay.again} />}
      <button type="button" class="small" onClick={() => set(null)}>
        Now
      </button>
    </div>
  );
  return { shown, bar };
}
