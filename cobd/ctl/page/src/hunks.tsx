// A unified diff as lines with marks.
export function Hunks({ text, legend }: { text: string; legend?: boolean }) {
  const lines = text.replace(/\n$/, "").split("\n");
  const signed = lines.some((line) => kindOf(line) === "minus" || kindOf(line) === "plus");
  return (
    <>
      {legend && signed && (
        <p class="hunks-legend muted">
          <span class="minus">−</span> on the host <span class="plus">+</span> in the model
        </p>
      )}
    <pre class="hunks" tabIndex={0} aria-label="Differences">
      {lines.slice(0, 2000).map((line, at) => (
        <span key={at} class={kindOf(line)}>
          {line || " "}
          {"\n"}
        </span>
      ))}
      {lines.length > 2000 && <span class="muted">… {lines.length - 2000} more lines</span>}
    </pre>
    </>
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
