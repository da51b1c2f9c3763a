// A moment of a switch: the slider over the time of the chart, and the states of the objects at the chosen time.
import { useMemo, useState } from "preact/hooks";
import { scaleOf, type Chart, type Segment } from "../gantt";
import { momentOf, PHASE_CLASS, PHASES, stepped, type Standing } from "../moment";
import { At, CobLink, HostLink, Mark } from "../parts";
import { address } from "../route";
import { table } from "../store";
import { count, moment as clock, span } from "../words";

/** The positions of the slider, and those of an idle part. */
const POSITIONS = 1000;
const IDLE = 40;
const OBJECTS = 50;
const HOSTS = 30;

interface SliderProps {
  chart: Chart;
  parts: Segment[];
  events: number[];
  /** Null: the end of the chart. */
  time: number | null;
  onTime: (time: number | null) => void;
}

/** The slider: dragging moves over the shown axis, without its idle time; arrow keys go from event to event. */
export function TimeSlider({ chart, parts, events, time, onTime }: SliderProps) {
  const scale = useMemo(() => scaleOf(parts, POSITIONS, IDLE), [parts]);
  const at = time ?? chart.end;
  const step = (by: 1 | -1) => onTime(stepped(events, at, by));
  const keys: Record<string, () => void> = {
    ArrowLeft: () => step(-1),
    ArrowDown: () => step(-1),
    ArrowRight: () => step(1),
    ArrowUp: () => step(1),
    Home: () => onTime(events[0] ?? 0),
    End: () => onTime(chart.end),
  };
  const when = chart.origin > 0 ? clock(chart.origin + at, chart.origin, true) : "";
  const words = `${span(at)}${when && `, ${when}`}`;
  return (
    <div class="slider" role="group" aria-label="Moment of the switch">
      <button type="button" class="icon" aria-label="Previous event" title="Previous event" disabled={at <= (events[0] ?? 0)} onClick={() => step(-1)}>
        ‹
      </button>
      <input
        type="range"
        min="0"
        max={POSITIONS}
        step="any"
        aria-label="Time"
        value={scale.x(at)}
        aria-valuetext={words}
        onInput={(event) => onTime(Math.min(chart.end, scale.time(Number(event.currentTarget.value))))}
        onKeyDown={(event) => {
          const action = keys[event.key];
          if (!action || event.altKey || event.ctrlKey || event.metaKey) return;
          event.preventDefault();
          action();
        }}
      />
      <button type="button" class="icon" aria-label="Next event" title="Next event" disabled={at >= chart.end} onClick={() => step(1)}>
        ›
      </button>
      <output class="number">{words}</output>
    </div>
  );
}

interface PartProps {
  chart: Chart;
  time: number;
  /** The generation of a past switch. */
  number?: number | undefined;
}

/** The objects at a time: numbers by phase and host, and the objects of the chosen phase. */
export function MomentPart({ chart, time, number }: PartProps) {
  const found = useMemo(() => momentOf(chart, time), [chart, time]);
  const [phase, setPhase] = useState<number | null>(null);
  const [most, setMost] = useState(HOSTS);
  const listed = phase === null ? found.standings : found.standings.filter((one) => one.phase === PHASES[phase]);
  // Objects that act or need something come first.
  const order = [3, 1, 2, 0, 4];
  const rank = (one: Standing) => order.indexOf(PHASES.indexOf(one.phase));
  const sorted = [...listed].sort((a, b) => rank(a) - rank(b));
  const still = useMemo(() => {
    const moved = new Set(chart.rows.map((row) => row.cob));
    return table.value?.ids.filter((id) => !moved.has(id)).length ?? 0;
  }, [chart, table.value]);
  return (
    <section class="moment" aria-label="States at this moment">
      <h3>
        After {span(time)}
        {chart.origin > 0 && (
          <>
            , <At ms={chart.origin + time} withMs />
          </>
        )}
      </h3>
      {number !== undefined && (
        <p>
          This moment in the{" "}
          {["graph", "matrix"].map((view) => (
            <a key={view} class="button small" href={address(view, "", { switch: String(number), after: String(time) })}>
              {view}
            </a>
          ))}
        </p>
      )}
      <div class="chips" role="group" aria-label="Objects by progress">
        {PHASES.map((name, at) => (
          <button key={name} type="button" class="chip" aria-pressed={phase === at} onClick={() => setPhase(phase === at ? null : at)}>
            <Mark cls={PHASE_CLASS[at]!} /> {name} <b class="number">{found.phases[at]!.toLocaleString("en")}</b>
          </button>
        ))}
      </div>
      {still > 0 && <p class="muted">{count(still, "other object")} of the present generation: no transition in this switch</p>}
      <div class="moment-parts">
        <ul class="change-list">
          {sorted.slice(0, OBJECTS).map((one) => (
            <li key={one.cob}>
              <span class="with-mark">
                <Mark cls={PHASE_CLASS[PHASES.indexOf(one.phase)]!} />
                <span>
                  <CobLink id={one.cob} /> <span class="muted">{wordsOf(one, time)}</span>
                </span>
              </span>
            </li>
          ))}
          {sorted.length > OBJECTS && <li class="muted">{count(sorted.length, "object")} in all</li>}
          {sorted.length === 0 && <li class="muted">No object is {PHASES[phase ?? 0]} at this moment.</li>}
        </ul>
        <div class="scroll-x">
          <table class="list">
            <thead>
              <tr>
                <th scope="col">Host</th>
                {PHASES.map((name) => (
                  <th key={name} scope="col" class="right">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {found.hosts.slice(0, most).map(({ host, phases }) => (
                <tr key={host}>
                  <th scope="row">
                    <HostLink name={host} />
                  </th>
                  {phases.map((number, at) => (
                    <td key={PHASES[at]} class={`right number ${number === 0 ? "muted" : ""}`}>
                      {number}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
          {found.hosts.length > most && (
            <button type="button" class="small" onClick={() => setMost(found.hosts.length)}>
              All {count(found.hosts.length, "host")}
            </button>
          )}
        </div>
      </div>
    </section>
  );
}

function wordsOf({ phase, state, since, waits, detail }: Standing, time: number): string {
  const words = [phase === "not begun" ? `${state}, not begun` : phase === "failed" ? `${state}, failed` : state];
  if (since !== undefined && time - since >= 1) words.push(`for ${span(time - since)}`);
  if (waits.length > 0) words.push(`waits for ${waits.join(", ")}`);
  else if (phase === "waiting") words.push("waits");
  if (detail) words.push(detail.split("\n")[0]!);
  return words.join(", ");
}
