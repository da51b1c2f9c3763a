// A text with conflict marks as its parts. Pure.
export type Part = { common: string[] } | { host: string[]; base: string[]; model: string[] };

/** The parts of a text with conflict marks (`<<<<<<<`, `|||||||`, `=======`, `>>>>>>>`); null: it has no conflict. */
export function partsOf(text: string): Part[] | null {
  const parts: Part[] = [];
  let common: string[] = [];
  let open: { host: string[]; base: string[]; model: string[] } | null = null;
  let side: "host" | "base" | "model" = "host";
  for (const line of text.replace(/\n$/, "").split("\n")) {
    if (line.startsWith("<<<<<<<")) {
      if (common.length > 0) parts.push({ common });
      common = [];
      open = { host: [], base: [], model: [] };
      side = "host";
    } else if (open && line.startsWith("|||||||")) side = "base";
    else if (open && line === "=======") side = "model";
    else if (open && line.startsWith(">>>>>>>")) {
      parts.push(open);
      open = null;
    } else if (open) open[side].push(line);
    else common.push(line);
  }
  if (open || parts.length === 0) return null;
  if (common.length > 0) parts.push({ common });
  return parts;
}
