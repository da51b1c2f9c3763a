// The drawing of the graph: nodes by their places, with less detail the smaller they are.
import type { Table } from "../table";
import { FAILED, SETTLED, UNKNOWN, WAITING } from "../table";
import type { Colors } from "../theme";
import type { Graph } from "../wire";
import { fitted, FONT, MONO, shape } from "./canvas";
import type { Box, Point, Viewport } from "./viewport";

/** A unit of the places, in world pixels. */
export const UNIT_X = 192;
export const UNIT_Y = 32;
const NODE_WIDTH = 156;
const NODE_HEIGHT = 24;
/** An object that more objects need is drawn with their number instead of their lines. */
export const HUB = 24;
/** From these scales on, nodes have labels and all lines, or only the lines within a host. */
const LABELS = 0.52;
const LINES = 0.16;

export interface Scene {
  table: Table;
  needs: { out: number[][]; into: number[][] };
  selected: number;
  hovered: number;
  /** The places that a search found; null: no search. */
  found: Set<number> | null;
}

export class Drawing {
  private readonly rows = new Map<number, number[]>();
  readonly box: Box;

  constructor(private readonly graph: Graph) {
    let right = 1;
    let bottom = 1;
    graph.x.forEach((x, index) => {
      const y = graph.y[index] ?? 0;
      const row = Math.floor(y);
      const list = this.rows.get(row);
      if (list) list.push(index);
      else this.rows.set(row, [index]);
      right = Math.max(right, x + 1);
      bottom = Math.max(bottom, y + 1);
    });
    for (const band of graph.bands) {
      right = Math.max(right, band.x + band.width);
      bottom = Math.max(bottom, band.y + band.height);
    }
    this.box = { x: 0, y: 0, width: right * UNIT_X, height: bottom * UNIT_Y };
  }

  /** The middle of a node, in the world. */
  centre(index: number): Point {
    const left = (this.graph.x[index] ?? 0) * UNIT_X;
    const top = (this.graph.y[index] ?? 0) * UNIT_Y;
    return { x: left + NODE_WIDTH / 2, y: top + NODE_HEIGHT / 2 };
  }

  /** The node at a point of the world, or -1; small nodes are hit within a few pixels. */
  hit(at: Point, scale: number): number {
    const spare = Math.max(0, 4 / scale);
    const from = Math.floor((at.y - spare) / UNIT_Y) - 1;
    const to = Math.ceil((at.y + spare) / UNIT_Y);
    let best = -1;
    let nearest = Infinity;
    for (let row = from; row <= to; row++) {
      for (const index of this.rows.get(row) ?? []) {
        const left = (this.graph.x[index] ?? 0) * UNIT_X;
        const top = (this.graph.y[index] ?? 0) * UNIT_Y;
        if (at.x < left - spare || at.x > left + NODE_WIDTH + spare) continue;
        if (at.y < top - spare || at.y > top + NODE_HEIGHT + spare) continue;
        const distance = Math.hypot(at.x - left - NODE_WIDTH / 2, at.y - top - NODE_HEIGHT / 2);
        if (distance < nearest) [best, nearest] = [index, distance];
      }
    }
    return best;
  }

  /** The nodes between two heights of the world. */
  private visible(top: number, bottom: number): number[] {
    const from = Math.floor(top / UNIT_Y) - 1;
    const to = Math.ceil(bottom / UNIT_Y);
    if (to - from > this.rows.size) return this.graph.x.map((_, index) => index);
    const found: number[] = [];
    for (let row = from; row <= to; row++) found.push(...(this.rows.get(row) ?? []));
    return found;
  }

  draw(pen: CanvasRenderingContext2D, width: number, height: number, view: Viewport, scene: Scene, colors: Colors): void {
    const { table, needs, selected } = scene;
    const { scale } = view;
    const topLeft = view.world({ x: 0, y: 0 });
    const bottomRight = view.world({ x: width, y: height });
    const near = selected >= 0 ? new Set([selected, ...(needs.out[selected] ?? []), ...(needs.into[selected] ?? [])]) : null;
    this.drawBands(pen, width, height, view, colors);

    const x = (index: number) => ((this.graph.x[index] ?? 0) * UNIT_X - view.x) * scale;
    const y = (index: number) => ((this.graph.y[index] ?? 0) * UNIT_Y - view.y) * scale;
    const wide = NODE_WIDTH * scale;
    const high = NODE_HEIGHT * scale;
    // A line leads from an object to the object that it needs, which usually is on the left.
    const connect = (from: number, to: number) => {
      const y1 = y(from) + high / 2;
      const y2 = y(to) + high / 2;
      let x1 = x(from);
      let x2 = x(to) + wide;
      if (x2 > x1 + wide) [x1, x2] = [x1 + wide, x2 - wide];
      const outside = (px: number, py: number) => px < 0 || px > width || py < 0 || py > height;
      if (outside(x1, y1) && outside(x2, y2)) return;
      pen.moveTo(x1, y1);
      if (scale < LABELS) {
        pen.lineTo(x2, y2);
        return;
      }
      const bend = Math.max(16 * scale, Math.abs(x1 - x2) / 2) * (x2 < x1 ? -1 : 1);
      pen.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
    };

    if (scale >= LINES) {
      pen.lineWidth = Math.max(0.5, Math.min(1, scale));
      pen.strokeStyle = colors.strong;
      pen.globalAlpha = near ? 0.4 : 1;
      pen.beginPath();
      for (let from = 0; from < needs.out.length; from++) {
        for (const to of needs.out[from]!) {
          const far = scale < LABELS && table.host[from] !== table.host[to];
          if (!far && (needs.into[to]?.length ?? 0) <= HUB) connect(from, to);
        }
      }
      pen.stroke();
      pen.globalAlpha = 1;
    }
    pen.lineWidth = 1.5;
    pen.strokeStyle = colors.classes[WAITING]!;
    pen.beginPath();
    const waiters = new Map<number, number>();
    for (const list of table.waits.values()) for (const to of list) waiters.set(to, (waiters.get(to) ?? 0) + 1);
    for (const [from, list] of table.waits) {
      for (const to of list) if ((waiters.get(to) ?? 0) <= HUB || to === selected) connect(from, to);
    }
    pen.stroke();
    if (selected >= 0) {
      pen.strokeStyle = colors.accent;
      pen.beginPath();
      for (const to of needs.out[selected] ?? []) connect(selected, to);
      // The dependents of a hub are only highlighted: their lines would cover everything else.
      const into = needs.into[selected] ?? [];
      if (into.length <= HUB) for (const from of into) connect(from, selected);
      pen.stroke();
    }

    const visible = this.visible(topLeft.y, bottomRight.y);
    if (scale >= LABELS) this.drawNodes(pen, visible, x, y, scale, width, scene, near, colors);
    else this.drawSmall(pen, visible, x, y, wide, high, width, scene, near, colors);
  }

  private drawBands(pen: CanvasRenderingContext2D, width: number, height: number, view: Viewport, colors: Colors): void {
    pen.textBaseline = "middle";
    for (const band of this.graph.bands) {
      const { x, y } = view.screen({ x: band.x * UNIT_X, y: band.y * UNIT_Y });
      const wide = band.width * UNIT_X * view.scale;
      const high = band.height * UNIT_Y * view.scale;
      if (x > width || y > height || x + wide < 0 || y + high < 0) continue;
      pen.fillStyle = colors.surface;
      pen.strokeStyle = colors.line;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.roundRect(x, y, wide, high, Math.min(6, high / 4));
      pen.fill();
      pen.stroke();
      const size = Math.min(12, Math.max(9, UNIT_Y * view.scale * 0.6));
      if (wide < 20 || high < 28) continue;
      pen.font = `600 ${size}px ${FONT}`;
      pen.fillStyle = colors.muted;
      pen.fillText(fitted(pen, band.host, wide - 8), x + 6, y + Math.max(size / 2 + 2, (UNIT_Y * view.scale) / 2));
    }
  }

  /** Nodes as small areas of colour; the problems are drawn last and never too small to be seen. */
  private drawSmall(
    pen: CanvasRenderingContext2D,
    visible: number[],
    x: (index: number) => number,
    y: (index: number) => number,
    wide: number,
    high: number,
    width: number,
    scene: Scene,
    near: Set<number> | null,
    colors: Colors,
  ): void {
    const { table, found } = scene;
    const lists: number[][] = [[], [], [], [], [], []];
    for (const index of visible) {
      const left = x(index);
      if (left < -wide || left > width) continue;
      lists[table.cls[index] ?? UNKNOWN]?.push(index);
    }
    for (const cls of [SETTLED, UNKNOWN, 4, WAITING, 1, FAILED]) {
      const least = cls === SETTLED ? 1 : 4;
      const w = Math.max(least, wide);
      const h = Math.max(least, high);
      const all = near === null && found === null;
      for (const faint of all ? [false] : [true, false]) {
        pen.fillStyle = colors.classes[cls]!;
        pen.globalAlpha = (cls === SETTLED ? 0.45 : 1) * (faint ? 0.35 : 1);
        for (const index of lists[cls]!) {
          const outside = (near !== null && !near.has(index)) || (found !== null && !found.has(index));
          if (all || outside === faint) pen.fillRect(x(index), y(index), w, h);
        }
      }
      pen.globalAlpha = 1;
      // From some pixels on, problems have their shapes.
      if (cls !== SETTLED && high >= 6) {
        for (const index of lists[cls]!) shape(pen, cls, x(index) + w / 2, y(index) + h / 2, Math.min(h, 10), colors.onColor);
      }
    }
    pen.strokeStyle = colors.accent;
    pen.lineWidth = 2;
    for (const index of [scene.selected, scene.hovered]) {
      if (index >= 0) pen.strokeRect(x(index) - 2, y(index) - 2, Math.max(4, wide) + 4, Math.max(4, high) + 4);
    }
    if (found) {
      for (const index of found) pen.strokeRect(x(index) - 1, y(index) - 1, Math.max(4, wide) + 2, Math.max(4, high) + 2);
    }
  }

  private drawNodes(
    pen: CanvasRenderingContext2D,
    visible: number[],
    x: (index: number) => number,
    y: (index: number) => number,
    scale: number,
    width: number,
    scene: Scene,
    near: Set<number> | null,
    colors: Colors,
  ): void {
    const { table, needs, selected, hovered, found } = scene;
    const wide = NODE_WIDTH * scale;
    const high = NODE_HEIGHT * scale;
    const size = 12 * scale;
    pen.textBaseline = "middle";
    for (const index of visible) {
      const left = x(index);
      if (left < -wide || left > width) continue;
      const top = y(index);
      const cls = table.cls[index] ?? UNKNOWN;
      const faint = (near !== null && !near.has(index)) || (found !== null && !found.has(index));
      pen.globalAlpha = faint ? 0.4 : 1;
      pen.fillStyle = cls === SETTLED ? colors.back : colors.soft[cls]!;
      pen.strokeStyle = cls === SETTLED ? colors.strong : colors.classes[cls]!;
      pen.lineWidth = 1;
      if (index === selected || index === hovered || found?.has(index)) {
        pen.strokeStyle = colors.accent;
        pen.lineWidth = index === selected ? 2.5 : 1.5;
      }
      pen.beginPath();
      pen.roundRect(left, top, wide, high, 4 * scale);
      pen.fill();
      pen.stroke();
      shape(pen, cls, left + 12 * scale, top + high / 2, 11 * scale, colors.classes[cls]!);
      const dependents = needs.into[index]?.length ?? 0;
      let room = wide - 26 * scale;
      if (dependents > HUB) {
        pen.font = `600 ${size * 0.9}px ${FONT}`;
        const words = `◂ ${dependents.toLocaleString("en")}`;
        const taken = pen.measureText(words).width + 10 * scale;
        pen.fillStyle = colors.accent;
        pen.beginPath();
        pen.roundRect(left + wide - taken, top, taken, high, 4 * scale);
        pen.fill();
        pen.fillStyle = colors.onColor;
        pen.fillText(words, left + wide - taken + 5 * scale, top + high / 2);
        room -= taken;
      }
      pen.font = `${size}px ${MONO}`;
      pen.fillStyle = colors.text;
      const id = table.ids[index] ?? "";
      pen.fillText(fitted(pen, id.slice(id.indexOf("/") + 1), room), left + 22 * scale, top + high / 2);
    }
    pen.globalAlpha = 1;
  }
}
