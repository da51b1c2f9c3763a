// A canvas that follows its size and the screen's resolution, and draws at most once in a frame.
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { colors, type Colors } from "../theme";

export type Draw = (pen: CanvasRenderingContext2D, width: number, height: number, colors: Colors) => void;

export interface Canvas {
  ref: { current: HTMLCanvasElement | null };
  /** Draws again in the next frame. */
  redraw: () => void;
}

/** `draw` draws in CSS pixels; it is called again when the size or the theme changes, or after `redraw`. */
export function useCanvas(draw: Draw): Canvas {
  const ref = useRef<HTMLCanvasElement>(null);
  const latest = useRef(draw);
  latest.current = draw;
  const frame = useRef(0);
  const redraw = useRef(() => {
    if (frame.current) return;
    frame.current = requestAnimationFrame(() => {
      frame.current = 0;
      const canvas = ref.current;
      const pen = canvas?.getContext("2d");
      if (!canvas || !pen) return;
      const ratio = devicePixelRatio || 1;
      const width = canvas.clientWidth;
      const height = canvas.clientHeight;
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
      }
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.clearRect(0, 0, width, height);
      latest.current(pen, width, height, colors.value);
    });
  });
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => redraw.current());
    observer.observe(ref.current!);
    const stop = colors.subscribe(() => redraw.current());
    return () => {
      observer.disconnect();
      stop();
      cancelAnimationFrame(frame.current);
      frame.current = 0;
    };
  }, []);
  // Each rendering of the component may have changed the content.
  useEffect(() => redraw.current());
  return { ref, redraw: redraw.current };
}

export const FONT = 'system-ui, -apple-system, "Segoe UI", "Noto Sans", "Liberation Sans", sans-serif';
export const MONO = 'ui-monospace, "SF Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace';

/** A text that fits into a width: the middle is cut, so that the end of a name stays. */
export function fitted(pen: CanvasRenderingContext2D, text: string, width: number): string {
  if (pen.measureText(text).width <= width) return text;
  let least = 0;
  let most = text.length;
  const cut = (keep: number) => `${text.slice(0, Math.floor(keep / 3))}…${text.slice(text.length - Math.ceil((keep * 2) / 3))}`;
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (pen.measureText(cut(middle)).width <= width) least = middle;
    else most = middle - 1;
  }
  return least > 1 ? cut(least) : "";
}

/** Letters of the classes in drawings. */
export const LETTERS = ["", "M", "W", "F", "S", "?"];

/** The shape of a class around a centre; the shapes are those of the marks in texts. */
export function shape(pen: CanvasRenderingContext2D, cls: number, x: number, y: number, size: number, color: string): void {
  const r = size / 2;
  pen.fillStyle = color;
  pen.strokeStyle = color;
  pen.beginPath();
  switch (cls) {
    case 0:
      pen.arc(x, y, r * 0.8, 0, 7);
      pen.fill();
      return;
    case 1:
      pen.moveTo(x - r * 0.65, y - r * 0.85);
      pen.lineTo(x + r * 0.9, y);
      pen.lineTo(x - r * 0.65, y + r * 0.85);
      break;
    case 2:
      pen.moveTo(x - r * 0.75, y - r * 0.9);
      pen.lineTo(x + r * 0.75, y - r * 0.9);
      pen.lineTo(x - r * 0.75, y + r * 0.9);
      pen.lineTo(x + r * 0.75, y + r * 0.9);
      break;
    case 3: {
      const k = r * 0.42;
      pen.moveTo(x - k, y - r);
      for (const [dx, dy] of [[k, -r], [r, -k], [r, k], [k, r], [-k, r], [-r, k], [-r, -k]] as const) pen.lineTo(x + dx, y + dy);
      break;
    }
    case 4:
      pen.rect(x - r * 0.8, y - r * 0.8, r * 1.6, r * 1.6);
      break;
    default:
      pen.lineWidth = Math.max(1, size / 9);
      pen.setLineDash([size / 6, size / 8]);
      pen.arc(x, y, r * 0.8, 0, 7);
      pen.stroke();
      pen.setLineDash([]);
      return;
  }
  pen.closePath();
  pen.fill();
}
