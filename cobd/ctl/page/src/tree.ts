// The graph as a tree: below each object what it needs, and what needs it. Pure.
export interface TreeRow {
  index: number;
  level: number;
  relation: "" | "needs" | "needed by";
  /** The way from the root, unique in the tree. */
  path: string;
  expanded: boolean;
  children: number;
  /** The place among the rows of the same parent, from 1, and their number. */
  position: number;
  of: number;
}

export interface Neighbours {
  out: number[][];
  into: number[][];
}

/** The rows of the tree from top to bottom. */
export function flatten(roots: number[], expanded: ReadonlySet<string>, needs: Neighbours): TreeRow[] {
  const rows: TreeRow[] = [];
  const add = (index: number, level: number, relation: TreeRow["relation"], path: string, position: number, of: number) => {
    const out = needs.out[index] ?? [];
    const into = needs.into[index] ?? [];
    const children = out.length + into.length;
    const open = children > 0 && expanded.has(path);
    rows.push({ index, level, relation, path, expanded: open, children, position, of });
    if (!open) return;
    out.forEach((child, at) => add(child, level + 1, "needs", `${path}>n${child}`, at + 1, children));
    into.forEach((child, at) => add(child, level + 1, "needed by", `${path}>b${child}`, out.length + at + 1, children));
  };
  roots.forEach((index, at) => add(index, 1, "", String(index), at + 1, roots.length));
  return rows;
}

/** The parent of a row, or the row itself if it is a root. */
export function parentOf(rows: TreeRow[], at: number): number {
  const level = rows[at]?.level ?? 1;
  for (let before = at - 1; before >= 0; before--) if (rows[before]!.level < level) return before;
  return at;
}
