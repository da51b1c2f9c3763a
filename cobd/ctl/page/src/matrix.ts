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
}

/** The classes from the least to the most urgent. */
const URGENCY = [0, 3, 2, 5, 1, 4];

/** A column for each object of a host, or for each service, whose cell shows the most urgent object. */
export function matrixOf(table: Table, services: boolean): Matrix {
  const columns = new Map<string, number>();
  const nameOf = (id: string) => {
    const rest = restOf(id);
    const slash = rest.indexOf("/");
    return services && slash >= 0 ? rest.slice(0, slash) : rest;
  };
  for (const id of table.ids) columns.set(nameOf(id), 0);
  const names = [...columns.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  names.forEach((name, at) => columns.set(name, at));
  const hosts = table.hosts.map((_, at) => at);
  hosts.sort((a, b) => table.hosts[a]!.localeCompare(table.hosts[b]!, "en", { numeric: true }));
  const rowOf = new Map(hosts.map((host, row) => [host, row]));
  const cells: (Cell | undefined)[][] = hosts.map(() => new Array<Cell | undefined>(names.length).fill(undefined));
  table.ids.forEach((id, index) => {
    const row = cells[rowOf.get(table.host[index]!)!]!;
    const column = columns.get(nameOf(id))!;
    const before = row[column];
    if (!before) row[column] = { index, count: 1 };
    else {
      before.count++;
      const urgency = (place: number) => URGENCY[table.cls[place] ?? 5] ?? 0;
      if (urgency(index) > urgency(before.index)) before.index = index;
    }
  });
  return { hosts, names, cells };
}
