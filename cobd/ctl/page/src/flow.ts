// Places the areas of hosts so that the drawing has the shape of its window. Pure.
import type { Band, Graph } from "./wire";

/** The space between areas, in units. */
const SPACE = 1;

/**
 * The graph with its areas placed in lines, in their order. `aspect` is the wanted width of the drawing divided by its
 * height, in units. Within an area all places stay.
 */
export function flow(graph: Graph, hostOf: (index: number) => string, aspect: number): Graph {
  const { bands } = graph;
  if (bands.length === 0) return graph;
  const surface = bands.reduce((sum, band) => sum + (band.width + SPACE) * (band.height + SPACE), 0);
  const widest = bands.reduce((most, band) => Math.max(most, band.width), 0);
  const most = Math.max(widest, Math.sqrt(surface * aspect));
  const placed = new Map<string, { from: Band; to: Band }>();
  let x = 0;
  let y = 0;
  let line = 0;
  for (const band of bands) {
    if (x > 0 && x + band.width > most) {
      x = 0;
      y += line + SPACE / 2;
      line = 0;
    }
    placed.set(band.host, { from: band, to: { ...band, x, y } });
    x += band.width + SPACE / 4;
    line = Math.max(line, band.height);
  }
  const move = (values: number[], axis: "x" | "y") =>
    values.map((value, index) => {
      const found = placed.get(hostOf(index));
      return found ? value - found.from[axis] + found.to[axis] : value;
    });
  return { ...graph, x: move(graph.x, "x"), y: move(graph.y, "y"), bands: [...placed.values()].map(({ to }) => to) };
}
