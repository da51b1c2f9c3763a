// A conflict side by side: the host's lines, the lines before, the model's lines.
import { partsOf } from "./conflict";
import { Hunks } from "./hunks";

/** Common lines beyond this number are left out in the middle. */
const CONTEXT = 4;

export function ThreeWay({ text }: { text: string }) {
  const parts = partsOf(text);
  if (!parts) return <Hunks text={text} />;
  return (
    <div class="three-way">
      {parts.map((part, at) =>
        "common" in part ? (
          <pre key={at} class="common" tabIndex={0} aria-label="Common lines">
            {shorten(part.common, at === 0, at === parts.length - 1).join("\n")}
          </pre>
        ) : (
          <div key={at} class="sides">
            <Side title="On the host" lines={part.host} kind="host" />
            <Side title="Before" lines={part.base} kind="base" />
            <Side title="In the model" lines={part.model} kind="model" />
          </div>
        ),
      )}
    </div>
  );
}

function Side({ title, lines, kind }: { title: string; lines: string[]; kind: string }) {
  return (
    <div class={`side side-${kind}`}>
      <p>{title}</p>
      <pre tabIndex={0} aria-label={title}>
        {lines.length > 0 ? lines.join("\n") : "(no lines)"}
      </pre>
    </div>
  );
}

function shorten(lines: string[], first: boolean, last: boolean): string[] {
  const left = `… ${lines.length - CONTEXT} lines`;
  if (first) return lines.length > CONTEXT + 1 ? [left, ...lines.slice(-CONTEXT)] : lines;
  if (last) return lines.length > CONTEXT + 1 ? [...lines.slice(0, CONTEXT), left] : lines;
  const both = 2 * CONTEXT;
  return lines.length > both + 1 ? [...lines.slice(0, CONTEXT), `… ${lines.length - both} lines`, ...lines.slice(-CONTEXT)] : lines;
}
