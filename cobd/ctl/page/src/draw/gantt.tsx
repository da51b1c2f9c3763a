// The Gantt chart: names and texts are rows of a grid, bars are a drawing beside them.
import { useMemo, useRef, useState } from "preact/hooks";
import { scaleOf, segments, type Bar, type Chart, type ChartRow, type Scale } from "../gantt";
import { eventsOf, standing } from "../moment";
import { CobLink } from "../parts";
import { cobAddress, go } from "../route";
import { narrow, type Colors } from "../theme";
import { Virtual } from "../virtual";
import { span } from "../words";
import { FONT, useCanvas } from "./canvas";
import { MomentPart, TimeSlider } from "./moment";

const ROW = 24;
const HEAD = 32;
const GAP = 36;

export function Gantt({ chart, forecast, number }: { chart: Chart; forecast: boolean; number?: number }) {
  const [active, setActive] = useState(-1);
  const [hover, setHover] = useState<{ row: number; time: number } | null>(null);
  const [time, setTime] = useState<number | null>(null);
  const view = useRef({ top: 0, height: 400 });
  const parts = useMemo(() => segments(chart), [chart]);
  const events = useMemo(() => eventsOf(chart), [chart]);
  const label = narrow.value ? 132 : 264;
  const width = useRef(800);
  const scale = useRef<Scale>(scaleOf(parts, 800, GAP));
  const canvas = useCanvas((pen, wide, high, colors) => {
    width.current = wide;
    scale.current = scaleOf(parts, wide - 16, GAP);
    draw(pen, wide, high, colors);
  });

  const draw = (pen: CanvasRenderingContext2D, wide: number, high: number, colors: Colors) => {
    const { x, ticks } = scale.current;
    const { top } = view.current;
    const first = Math.max(0, Math.floor(top / ROW));
    const last = Math.min(chart.rows.length, Math.ceil((top + high - HEAD) / ROW) + 1);
    const bottom = Math.min(high, HEAD + chart.rows.length * ROW - top);
    pen.font = `11px ${FONT}`;
    pen.textBaseline = "middle";
    pen.lineWidth = 1;
    for (const tick of ticks) {
      const at = Math.round(x(tick)) + 0.5;
      pen.strokeStyle = colors.line;
      line(pen, at, HEAD, at, bottom);
      pen.fillStyle = colors.muted;
      const words = tick === 0 ? "0" : span(tick).replace(".0 ", " ");
      const half = pen.measureText(words).width / 2;
      pen.fillText(words, Math.min(Math.max(0, at - half), wide - 2 * half), HEAD / 2);
    }
    for (const part of parts) {
      if (!part.idle) continue;
      const from = x(part.begin);
      pen.fillStyle = colors.back;
      pen.fillRect(from, HEAD, GAP, bottom - HEAD);
      pen.fillStyle = colors.muted;
      pen.textAlign = "center";
      pen.fillText("idle", from + GAP / 2, HEAD / 2 - 6);
      pen.fillText(coarse(part.end - part.begin), from + GAP / 2, HEAD / 2 + 7);
      pen.textAlign = "left";
    }
    pen.save();
    pen.beginPath();
    pen.rect(0, HEAD, wide, high - HEAD);
    pen.clip();
    for (const { at } of chart.activated) {
      pen.strokeStyle = colors.line;
      pen.setLineDash([2, 3]);
      line(pen, x(at) + 0.5, HEAD, x(at) + 0.5, bottom);
      pen.setLineDash([]);
    }
    for (let row = first; row < last; row++) {
      drawRow(pen, chart.rows[row]!, HEAD + row * ROW - top, scale.current, colors, forecast);
    }
    pen.restore();
    const cursor = time ?? hover?.time;
    if (cursor !== undefined) {
      pen.strokeStyle = colors.accent;
      line(pen, Math.round(x(cursor)) + 0.5, HEAD - 4, Math.round(x(cursor)) + 0.5, bottom);
    }
  };

  const onMove = (event: PointerEvent) => {
    const box = canvas.ref.current!.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - HEAD + view.current.top) / ROW);
    const inside = event.clientX >= box.left && row >= 0 && row < chart.rows.length && event.clientY > box.top + HEAD;
    setHover(inside ? { row, time: scale.current.time(event.clientX - box.left) } : null);
  };

  const shown = hover ? hover.row : active;
  return (
    <div class="gantt" onPointerMove={onMove} onPointerLeave={() => setHover(null)}>
      <div class="gantt-tools">
        <TimeSlider chart={chart} parts={parts} events={events} time={time} onTime={setTime} />
        {time !== null && (
          <button type="button" class="small" onClick={() => setTime(null)}>
            Whole
          </button>
        )}
        <Legend forecast={forecast} planned={chart.rows.some((row) => row.planned)} />
      </div>
      <div class="gantt-body" style={{ height: `${Math.min(chart.rows.length, 24) * ROW + HEAD + 2}px` }}>
        <Virtual
          id="gantt"
          class="gantt-rows"
          label={forecast ? "Forecast transitions by object" : "Transitions by object"}
          role="grid"
          count={chart.rows.length}
          columns={2}
          rowHeight={ROW}
          active={active}
          onActive={setActive}
          keyOf={(at) => chart.rows[at]!.cob}
          onOpen={(at) => go(cobAddress(chart.rows[at]!.cob))}
          onView={(now) => {
            view.current = now;
            canvas.redraw();
          }}
          head={
            <>
              <div role="columnheader" class="cell" style={{ width: `${label}px` }}>
                Object
              </div>
              <div role="columnheader" class="hidden">
                Transitions
              </div>
            </>
          }
          row={(at) => (
            <>
              <div role="gridcell" class="cell gantt-name" style={{ width: `${label}px` }}>
                <CobLink id={chart.rows[at]!.cob} />
                {time !== null && <span class="muted"> {standing(chart.rows[at]!, time).state}</span>}
              </div>
              <div role="gridcell" class="hidden">
                {wordsOf(chart.rows[at]!)}
              </div>
            </>
          )}
        />
        <canvas ref={canvas.ref} class="gantt-canvas" style={{ width: `calc(100% - ${label + 12}px)` }} aria-hidden="true" />
      </div>
      <p class="hover-line" aria-hidden="true">
        {shown >= 0 && chart.rows[shown] ? `${chart.rows[shown]!.cob}: ${wordsOf(chart.rows[shown]!)}` : " "}
      </p>
      {time !== null && <MomentPart chart={chart} time={time} number={number} />}
    </div>
  );
}

/** A duration in its largest unit only. */
function coarse(ms: number): string {
  return span(ms).split(" ").slice(0, 2).join(" ");
}

function line(pen: CanvasRenderingContext2D, x1: number, y1: number, x2: number, y2: number): void {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

function drawRow(pen: CanvasRenderingContext2D, row: ChartRow, y: number, scale: Scale, colors: Colors, forecast: boolean): void {
  const { x } = scale;
  const middle = Math.round(y + ROW / 2) + 0.5;
  pen.lineWidth = 1;
  for (const wait of row.waits) {
    pen.strokeStyle = forecast ? colors.classes[2]! : colors.muted;
    pen.setLineDash(forecast ? [4, 3] : []);
    line(pen, x(wait.begin), middle, x(wait.end), middle);
    if (!forecast) line(pen, x(wait.begin) + 0.5, middle - 3, x(wait.begin) + 0.5, middle + 3);
  }
  pen.setLineDash([]);
  pen.fillStyle = colors.strong;
  for (const plan of row.planned ?? []) pen.fillRect(x(plan.begin), y + ROW - 4, Math.max(2, x(plan.end) - x(plan.begin)), 3);
  for (const bar of row.bars) {
    const left = x(bar.begin);
    const wide = Math.max(3, x(bar.end) - left);
    const top = y + 4;
    const high = ROW - 8;
    const color = bar.ok === false ? colors.classes[3]! : colors.classes[1]!;
    pen.fillStyle = bar.ok === false ? colors.soft[3]! : colors.soft[1]!;
    if (bar.critical) pen.fillStyle = color;
    pen.strokeStyle = color;
    pen.beginPath();
    pen.roundRect(left + 0.5, top + 0.5, wide - 1, high - 1, Math.min(3, wide / 2 - 0.5));
    pen.fill();
    if (bar.ok === null) pen.setLineDash([4, 3]);
    pen.stroke();
    pen.setLineDash([]);
    if (bar.ok === false) {
      const right = left + wide;
      pen.lineWidth = 2;
      line(pen, right - 4, top + 4, right + 4, top + high - 4);
      line(pen, right - 4, top + high - 4, right + 4, top + 4);
      pen.lineWidth = 1;
    }
    if (wide > 36) {
      pen.font = `11px ${FONT}`;
      pen.fillStyle = bar.critical ? colors.onColor : colors.text;
      const words = `${bar.from} → ${bar.to}`;
      const text = pen.measureText(words).width <= wide - 12 ? words : pen.measureText(bar.to).width <= wide - 12 ? bar.to : "";
      pen.fillText(text, left + 6, middle);
    }
  }
}

function barWords(bar: Bar): string {
  const parts = [`${bar.from} → ${bar.to}`];
  if (bar.ok === null) parts.push(`has been running for ${span(bar.end - bar.begin)}`);
  else parts.push(bar.ok ? `took ${span(bar.end - bar.begin)}` : `failed after ${span(bar.end - bar.begin)}`);
  if (bar.attempt > 1) parts.push(`attempt ${bar.attempt}`);
  if (bar.critical) parts.push("on the critical path");
  if (bar.ok === false && bar.detail) parts.push(bar.detail);
  return `from ${span(bar.begin)}: ${parts.join(", ")}`;
}

/** A row in words, for screen readers and the line below the chart. */
function wordsOf(row: ChartRow): string {
  const waits = row.waits.filter((wait) => wait.of !== "" && wait.end - wait.begin >= 1);
  const waited = waits.map((wait) => `waited ${span(wait.end - wait.begin)} for ${wait.of}`);
  const planned = (row.planned ?? []).map((plan) => `forecast: ${plan.to} after ${span(plan.end)}`);
  return [...row.bars.map(barWords), ...waited, ...planned].join("; ");
}

function Legend({ forecast, planned }: { forecast: boolean; planned: boolean }) {
  return (
    <span class="legend muted">
      <span class="key key-critical" aria-hidden="true" /> critical path
      <span class="key key-bar" aria-hidden="true" /> transition
      <span class={`key ${forecast ? "key-away" : "key-wait"}`} aria-hidden="true" /> {forecast ? "interrupted" : "waits"}
      {planned && (
        <>
          <span class="key key-planned" aria-hidden="true" /> forecast
        </>
      )}
    </span>
  );
}
