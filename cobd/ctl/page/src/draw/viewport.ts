// The part of a drawing that is visible: moves and scales. Pure, but for the events.
export interface Point {
  x: number;
  y: number;
}

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Screen = (world - origin) * scale. */
export class Viewport {
  x = 0;
  y = 0;
  scale = 1;

  constructor(
    private readonly least: number,
    private readonly most: number,
  ) {}

  screen(world: Point): Point {
    return { x: (world.x - this.x) * this.scale, y: (world.y - this.y) * this.scale };
  }

  world(screen: Point): Point {
    return { x: screen.x / this.scale + this.x, y: screen.y / this.scale + this.y };
  }

  /** Moves the content by pixels. */
  pan(dx: number, dy: number): void {
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
  }

  /** Scales around a point of the screen, which keeps its place. */
  zoom(factor: number, at: Point): void {
    const before = this.world(at);
    this.scale = Math.min(this.most, Math.max(this.least, this.scale * factor));
    this.x = before.x - at.x / this.scale;
    this.y = before.y - at.y / this.scale;
  }

  /** Shows a box as a whole, with a margin in pixels; at most in its natural size. */
  fit(box: Box, width: number, height: number, margin: number): void {
    const wide = Math.max(1, width - 2 * margin);
    const high = Math.max(1, height - 2 * margin);
    const scale = Math.min(1, wide / Math.max(1, box.width), high / Math.max(1, box.height));
    this.scale = Math.min(this.most, Math.max(this.least, scale));
    this.x = box.x - (width / this.scale - box.width) / 2;
    this.y = box.y - (height / this.scale - box.height) / 2;
  }

  /** Moves a point into the middle. */
  centre(point: Point, width: number, height: number): void {
    this.x = point.x - width / 2 / this.scale;
    this.y = point.y - height / 2 / this.scale;
  }
}

export interface Handlers {
  changed: () => void;
  click: (at: Point) => void;
  hover: (at: Point | null) => void;
  fit: () => void;
}

const KEY_STEP = 60;

/** Moves the viewport by drag, wheel, pinch and keys. Returns the end of it. */
export function control(element: HTMLElement, view: Viewport, handlers: Handlers): () => void {
  const pointers = new Map<number, Point>();
  let moved = 0;
  const place = (event: PointerEvent | WheelEvent): Point => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    element.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    if (pointers.size === 1) moved = 0;
  };
  const move = (event: PointerEvent) => {
    const at = place(event);
    const before = pointers.get(event.pointerId);
    if (!before) {
      handlers.hover(at);
      return;
    }
    const others = [...pointers.entries()].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    const other = others[0];
    if (other) {
      const distance = (a: Point, b: Point) => Math.max(1, Math.hypot(a.x - b.x, a.y - b.y));
      view.zoom(distance(at, other) / distance(before, other), { x: (at.x + other.x) / 2, y: (at.y + other.y) / 2 });
      view.pan((at.x - before.x) / 2, (at.y - before.y) / 2);
      moved = Infinity;
    } else {
      moved += Math.abs(at.x - before.x) + Math.abs(at.y - before.y);
      view.pan(at.x - before.x, at.y - before.y);
    }
    pointers.set(event.pointerId, at);
    handlers.changed();
  };
  const up = (event: PointerEvent) => {
    if (!pointers.delete(event.pointerId)) return;
    if (pointers.size === 0 && moved < 5 && event.type === "pointerup") handlers.click(place(event));
  };
  const leave = () => handlers.hover(null);
  const wheel = (event: WheelEvent) => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey) view.pan(-event.deltaY * unit, -event.deltaX * unit);
    else view.zoom(Math.exp(-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0015)), place(event));
    handlers.changed();
  };
  const key = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const middle = { x: element.clientWidth / 2, y: element.clientHeight / 2 };
    const actions: Record<string, () => void> = {
      ArrowLeft: () => view.pan(KEY_STEP, 0),
      ArrowRight: () => view.pan(-KEY_STEP, 0),
      ArrowUp: () => view.pan(0, KEY_STEP),
      ArrowDown: () => view.pan(0, -KEY_STEP),
      "+": () => view.zoom(1.25, middle),
      "=": () => view.zoom(1.25, middle),
      "-": () => view.zoom(0.8, middle),
      "0": () => handlers.fit(),
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
    handlers.changed();
  };
  element.addEventListener("pointerdown", down);
  element.addEventListener("pointermove", move);
  element.addEventListener("pointerup", up);
  element.addEventListener("pointercancel", up);
  element.addEventListener("pointerleave", leave);
  element.addEventListener("wheel", wheel, { passive: false });
  element.addEventListener("keydown", key);
  return () => {
    element.removeEventListener("pointerdown", down);
    element.removeEventListener("pointermove", move);
    element.removeEventListener("pointerup", up);
    element.removeEventListener("pointercancel", up);
    element.removeEventListener("pointerleave", leave);
    element.removeEventListener("wheel", wheel);
    element.removeEventListener("keydown", key);
  };
}
