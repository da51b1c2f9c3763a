// Hosts and services as a matrix. Pure.
import { restOf, type Table } from "./table";

export interface Cell {
  /** The object with the most urgent class. */
  index: number;
  /** How many objects the cell stands for. */
  count: number;
}

export interface Matrix {
  /** Indices into `table.hosts`. */
  hosts: number[];
  names: string[];
  /** Cells by row and column; undefined: the host has no such object. */
  cells: (Cell | undefined)[][];
  /** The cell of each object. */
  cellOf: Cell[];
}

/** The classes from the least to the most urgent. */
const URGENCY = [0, 3, 2, 5, 1, 4];

/** A column for each object of a host, or for each service. */
export function matrixOf(table: Table, services: boolean): Matrix {
  const columns = new Map<string, number>();
  const nameOf = (id: string) => {
    const rest = restOf(id);
    const slash = rest.indexOf("/");
    return services && slash >= 0 ? rest.slice(0, slash) : rest;
  };
  const { compare } = new Intl.Collator("en", { numeric: true });
  const own = table.ids.map(nameOf);
  const names = [...new Set(own)].sort(compare);
  names.forEach((name, at) => columns.set(name, at));
  const hosts = table.hosts.map((_, at) => at);
  hosts.sort((a, b) => compare(table.hosts[a]!, table.hosts[b]!));
  const rowOf = new Map(hosts.map((host, row) => [host, row]));
  const cells: (Cell | undefined)[][] = hosts.map(() => new Array<Cell | undefined>(names.length).fill(undefined));
  const cellOf = table.ids.map((_, index) => {
    const row = cells[rowOf.get(table.host[index]!)!]!;
    const column = columns.get(own[index]!)!;
    const cell = row[column] ?? { index, count: 0 };
    cell.count++;
    row[column] = cell;
    return cell;
  });
  const matrix = { hosts, names, cells, cellOf };
  refresh(matrix, table);
  return matrix;
}

/** Lets each cell name its most urgent object now. */
export function refresh(matrix: Matrix, table: Table): void {
  const urgency = (index: number) => URGENCY[table.cls[index] ?? 5] ?? 0;
  matrix.cellOf.forEach((cell, index) => {
    if (cell.count > 1 && urgency(index) > urgency(cell.index)) cell.index = index;
  });
}
