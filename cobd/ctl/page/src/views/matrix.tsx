// Hosts and services as a matrix: a drawing that scrolls, which is a grid for the keyboard and for screen readers.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { fitted, FONT, LETTERS, MONO, shape, useCanvas } from "../draw/canvas";
import { matrixOf, refresh, type Matrix } from "../matrix";
import { HOST_CLASS, Mark } from "../parts";
import { address, cobAddress, go, here, hostAddress, setParams } from "../route";
import { hosts, now, table as present, tick } from "../store";
import { CLASSES, type Table, UNKNOWN } from "../table";
import { narrow, type Colors } from "../theme";
import { count, span } from "../words";
import { usePast } from "./past";

const SIZES = [8, 12, 16, 20, 24, 32];
/** From this size on, cells have shapes and letters. */
const SHAPES = 16;
/** Around the active cell, so many rows and columns exist for screen readers. */
const AROUND = 3;

export function MatrixView() {
  const objects = present.value;
  if (!objects) return null;
  return <Content objects={objects} />;
}

function Content({ objects }: { objects: Table }) {
  tick.value;
  const { params } = here.value;
  const wanted = params.get("by");
  const many = useMemo(() => matrixOf(objects, false).names.length > 60, [objects]);
  const services = wanted === null ? many : wanted === "service";
  const matrix = useMemo(() => matrixOf(objects, services), [objects, services]);
  const { shown: table, bar } = usePast(objects);
  refresh(matrix, table);
  const [size, setSize] = useState(() => (objects.hosts.length > 40 ? 3 : objects.hosts.length > 12 ? 4 : 5));
  const cell = SIZES[size]!;
  const [active, setActive] = useState<{ row: number; column: number } | null>(null);
  const [hover, setHover] = useState<{ row: number; column: number } | null>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const label = narrow.value ? 72 : 120;
  const longest = matrix.names.reduce((most, name) => Math.max(most, name.length), 0);
  const head = Math.min(170, Math.max(48, longest * 7.4 + 18));
  const wide = matrix.names.length * cell;
  const high = matrix.hosts.length * cell;
  // The hosts' marks are of now.
  const marks = useMemo(() => new Map(bar ? [] : hosts.value.map((host) => [host.name, HOST_CLASS[host.mark]])), [hosts.value, !bar]);

  const canvas = useCanvas((pen, width, height, colors) => {
    const element = scroller.current!;
    paint(pen, width, height, colors, {
      objects: table, matrix, cell, label, head, marks, left: element.scrollLeft, top: element.scrollTop, active, hover,
    });
  });
  useEffect(() => {
    const element = scroller.current!;
    element.addEventListener("scroll", canvas.redraw, { passive: true });
    return () => element.removeEventListener("scroll", canvas.redraw);
  }, []);

  const cellAt = (event: MouseEvent): { row: number; column: number } => {
    const element = scroller.current!;
    const box = element.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    return {
      row: y < head ? -1 : Math.floor((y - head + element.scrollTop) / cell),
      column: x < label ? -1 : Math.floor((x - label + element.scrollLeft) / cell),
    };
  };
  const open = (row: number, column: number) => {
    const host = objects.hosts[matrix.hosts[row] ?? -1];
    const name = matrix.names[column];
    if (row < 0 && name !== undefined) go(address("objects", "", { name }));
    else if (column < 0 && host !== undefined) go(hostAddress(host));
    else {
      const found = matrix.cells[row]?.[column];
      if (!found) return;
      if (found.count > 1) go(address("objects", "", { host: host!, name: name! }));
      else go(cobAddress(objects.ids[found.index]!));
    }
  };
  const move = (row: number, column: number) => {
    const next = {
      row: Math.max(0, Math.min(matrix.hosts.length - 1, row)),
      column: Math.max(0, Math.min(matrix.names.length - 1, column)),
    };
    setActive(next);
    const element = scroller.current!;
    const keep = (from: number, offset: number, visible: number) =>
      offset < from ? offset : offset + cell > from + visible ? offset + cell - visible : from;
    element.scrollTop = keep(element.scrollTop, next.row * cell, element.clientHeight - head);
    element.scrollLeft = keep(element.scrollLeft, next.column * cell, element.clientWidth - label);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.altKey || event.metaKey) return;
    const { row, column } = active ?? { row: 0, column: 0 };
    const page = Math.max(1, Math.floor((scroller.current!.clientHeight - head) / cell) - 1);
    const moves: Record<string, () => void> = {
      ArrowDown: () => move(row + 1, column),
      ArrowUp: () => move(row - 1, column),
      ArrowRight: () => move(row, column + 1),
      ArrowLeft: () => move(row, column - 1),
      PageDown: () => move(row + page, column),
      PageUp: () => move(row - page, column),
      Home: () => move(event.ctrlKey ? 0 : row, 0),
      End: () => move(event.ctrlKey ? Infinity : row, Infinity),
      Enter: () => open(row, column),
      "+": () => setSize(Math.min(SIZES.length - 1, size + 1)),
      "-": () => setSize(Math.max(0, size - 1)),
    };
    const action = moves[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  };
  const shown = hover ?? active;
  const by = (what: string) => setParams(new URLSearchParams([...params].filter(([key]) => key !== "by").concat([["by", what]])));
  return (
    <div class="view fill">
      <h1 class="hidden">Matrix</h1>
      <div class="fields matrix-tools">
        <div class="chips" role="group" aria-label="Columns">
          <button type="button" class="chip" aria-pressed={!services} onClick={() => by("object")}>
            Objects
          </button>
          <button type="button" class="chip" aria-pressed={services} onClick={() => by("service")}>
            Services
          </button>
        </div>
        <span class="legend muted">
          {CLASSES.map((name, cls) => (
            <span key={name} class="legend-item">
              <Mark cls={cls} /> {LETTERS[cls] && LETTERS[cls] !== "?" ? `${LETTERS[cls]} ` : ""}
              {name}
            </span>
          ))}
        </span>
        <span class="grow" />
        <span class="buttons">
          <button type="button" class="icon" aria-label="Smaller" disabled={size === 0} onClick={() => setSize(size - 1)}>
            −
          </button>
          <button type="button" class="icon" aria-label="Larger" disabled={size === SIZES.length - 1} onClick={() => setSize(size + 1)}>
            +
          </button>
        </span>
      </div>
      {bar}
      <div class="matrix-frame">
        <div
          ref={scroller}
          class="matrix"
          role="grid"
          tabIndex={0}
          aria-label={`${count(matrix.hosts.length, "host")} and ${count(matrix.names.length, services ? "service" : "object")}`}
          aria-rowcount={matrix.hosts.length + 1}
          aria-colcount={matrix.names.length + 1}
          aria-activedescendant={active ? `cell-${active.row}-${active.column}` : undefined}
          onKeyDown={onKeyDown}
          onFocus={() => active ?? setActive({ row: 0, column: 0 })}
          onPointerMove={(event) => setHover(cellAt(event))}
          onPointerLeave={() => setHover(null)}
          onClick={(event) => {
            const { row, column } = cellAt(event);
            if (row >= 0 && column >= 0) setActive({ row, column });
            open(row, column);
          }}
        >
          <canvas ref={canvas.ref} aria-hidden="true" />
          <div role="presentation" style={{ width: `${label + wide}px`, height: `${head + high}px` }} />
          <Around objects={table} matrix={matrix} active={active ?? { row: 0, column: 0 }} />
        </div>
      </div>
      <p class="hover-line" aria-hidden="true">
        {shown ? wordsOf(table, matrix, shown.row, shown.column) : " "}
      </p>
    </div>
  );
}

interface Scene {
  objects: Table;
  matrix: Matrix;
  cell: number;
  label: number;
  head: number;
  marks: Map<string, number>;
  left: number;
  top: number;
  active: { row: number; column: number } | null;
  hover: { row: number; column: number } | null;
}

function paint(pen: CanvasRenderingContext2D, width: number, height: number, colors: Colors, scene: Scene): void {
  const { objects, matrix, cell, label, head, left, top } = scene;
  const firstRow = Math.max(0, Math.floor(top / cell));
  const lastRow = Math.min(matrix.hosts.length, Math.ceil((top + height - head) / cell));
  const firstColumn = Math.max(0, Math.floor(left / cell));
  const lastColumn = Math.min(matrix.names.length, Math.ceil((left + width - label) / cell));
  const gap = cell >= SHAPES ? 2 : 1;
  pen.textBaseline = "middle";
  pen.save();
  pen.beginPath();
  pen.rect(label, head, width - label, height - head);
  pen.clip();
  for (const spot of [scene.hover, scene.active]) {
    if (!spot) continue;
    pen.fillStyle = colors.line;
    pen.globalAlpha = 0.5;
    pen.fillRect(label, head + spot.row * cell - top, width, cell);
    pen.fillRect(label + spot.column * cell - left, head, cell, height);
    pen.globalAlpha = 1;
  }
  for (let row = firstRow; row < lastRow; row++) {
    for (let column = firstColumn; column < lastColumn; column++) {
      const found = matrix.cells[row]![column];
      if (!found) continue;
      const cls = objects.cls[found.index] ?? UNKNOWN;
      const x = label + column * cell - left + gap / 2;
      const y = head + row * cell - top + gap / 2;
      const inner = cell - gap;
      pen.fillStyle = cell >= SHAPES ? colors.soft[cls]! : colors.classes[cls]!;
      if (cell < SHAPES && cls === 0) pen.globalAlpha = 0.45;
      pen.beginPath();
      pen.roundRect(x, y, inner, inner, Math.min(4, cell / 5));
      pen.fill();
      pen.globalAlpha = 1;
      if (cell < SHAPES) continue;
      const letter = LETTERS[cls] ?? "?";
      if (cell >= 24 && letter && cls !== UNKNOWN) {
        shape(pen, cls, x + inner * 0.3, y + inner / 2, inner * 0.42, colors.classes[cls]!);
        pen.font = `700 ${inner * 0.45}px ${FONT}`;
        pen.fillStyle = colors.classes[cls]!;
        pen.textAlign = "center";
        pen.fillText(letter, x + inner * 0.72, y + inner / 2 + 0.5);
        pen.textAlign = "left";
      } else shape(pen, cls, x + inner / 2, y + inner / 2, inner * (cls === 0 ? 0.4 : 0.62), colors.classes[cls]!);
    }
  }
  if (scene.active) {
    pen.strokeStyle = colors.accent;
    pen.lineWidth = 2;
    pen.strokeRect(label + scene.active.column * cell - left + 1, head + scene.active.row * cell - top + 1, cell - 2, cell - 2);
  }
  pen.restore();
  // Names of hosts, on the left.
  pen.save();
  pen.beginPath();
  pen.rect(0, head, label, height - head);
  pen.clip();
  const step = Math.max(1, Math.ceil(14 / cell));
  for (let row = firstRow; row < lastRow; row++) {
    const name = objects.hosts[matrix.hosts[row]!]!;
    const cls = scene.marks.get(name) ?? UNKNOWN;
    const y = head + row * cell - top + cell / 2;
    if (cell >= 8) shape(pen, cls, 10, y, Math.min(10, cell - 2), colors.classes[cls]!);
    if (row % step !== 0 && cell < 14) continue;
    pen.font = `12px ${MONO}`;
    pen.fillStyle = row === scene.hover?.row || row === scene.active?.row ? colors.accent : colors.text;
    pen.fillText(fitted(pen, name, label - 26), 20, y);
  }
  pen.restore();
  // Names of columns, upwards.
  pen.save();
  pen.beginPath();
  pen.rect(label, 0, width - label, head);
  pen.clip();
  const spaced = Math.max(1, Math.ceil(14 / cell));
  for (let column = firstColumn; column < lastColumn; column++) {
    if (column % spaced !== 0) continue;
    pen.save();
    pen.translate(label + column * cell - left + cell / 2, head - 6);
    pen.rotate(-Math.PI / 2);
    pen.font = `12px ${MONO}`;
    pen.fillStyle = column === scene.hover?.column || column === scene.active?.column ? colors.accent : colors.text;
    pen.fillText(fitted(pen, matrix.names[column]!, head - 12), 0, 0);
    pen.restore();
  }
  pen.restore();
  pen.strokeStyle = colors.line;
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(0, head - 0.5);
  pen.lineTo(width, head - 0.5);
  pen.moveTo(label - 0.5, 0);
  pen.lineTo(label - 0.5, height);
  pen.stroke();
}

/** A cell in words. */
function wordsOf(objects: Table, matrix: Matrix, row: number, column: number): string {
  const host = objects.hosts[matrix.hosts[row] ?? -1];
  const name = matrix.names[column];
  if (row < 0) return name ?? "";
  if (column < 0) return host ?? "";
  const found = matrix.cells[row]?.[column];
  if (host === undefined || name === undefined) return "";
  if (!found) return `${host}/${name}: not there`;
  const cls = CLASSES[objects.cls[found.index] ?? UNKNOWN];
  const since = objects.since[found.index] ?? 0;
  const long = since > 0 ? ` for ${span(now.value - since)}` : "";
  if (found.count > 1) return `${host}/${name}: ${count(found.count, "object")}, most urgent ${objects.ids[found.index]}: ${cls}${long}`;
  return `${objects.ids[found.index]}: ${cls}, ${objects.stateName(objects.state[found.index] ?? -1)}${long}`;
}

/** The cells around the active cell, for screen readers. */
function Around({ objects, matrix, active }: { objects: Table; matrix: Matrix; active: { row: number; column: number } }) {
  const range = (middle: number, length: number) => {
    const from = Math.max(0, middle - AROUND);
    return Array.from({ length: Math.max(0, Math.min(length, middle + AROUND + 1) - from) }, (_, at) => from + at);
  };
  const columns = range(active.column, matrix.names.length);
  return (
    <div role="rowgroup" class="hidden">
      <div role="row" aria-rowindex={1}>
        <div role="columnheader" aria-colindex={1}>
          Host
        </div>
        {columns.map((column) => (
          <div key={column} role="columnheader" aria-colindex={column + 2}>
            {matrix.names[column]}
          </div>
        ))}
      </div>
      {range(active.row, matrix.hosts.length).map((row) => (
        <div key={row} role="row" aria-rowindex={row + 2}>
          <div role="rowheader" aria-colindex={1}>
            {objects.hosts[matrix.hosts[row]!]}
          </div>
          {columns.map((column) => (
            <div
              key={column}
              role="gridcell"
              id={`cell-${row}-${column}`}
              aria-colindex={column + 2}
              aria-selected={row === active.row && column === active.column}
            >
              {wordsOf(objects, matrix, row, column)}
            </div>
          ))}
        </div>
      ))}
    </div>
  );
}
