// A unified diff as lines with marks.
export function Hunks({ text }: { text: string }) {
  const lines = text.replace(/\n$/, "").split("\n");
  return (
    <pre class="hunks" tabIndex={0} aria-label="Differences">
      {lines.slice(0, 2000).map((line, at) => (
        <span key={at} class={kindOf(line)}>
          {line || " "}
          {"\n"}
        </span>
      ))}
      {lines.length > 2000 && <span class="muted">… {lines.length - 2000} more lines</span>}
    </pre>
  );
}

export function kindOf(line: string): string {
  if (/^(<<<<<<<|=======|>>>>>>>|\|\|\|\|\|\|\|)/.test(line)) return "conflict-mark";
  if (line.startsWith("+++") || line.startsWith("---") || line.startsWith("diff ")) return "file";
  if (line.startsWith("@@")) return "place";
  if (line.startsWith("+")) return "plus";
  if (line.startsWith("-")) return "minus";
  return "";
}
