// Drift and conflicts of all hosts: differences and decisions.
import { useState } from "preact/hooks";
import { proposal } from "../proposal";
import { Hunks } from "../hunks";
import { useAsk } from "../load";
import { CobLink, Empty, Loading, Mark, Since, StateWords, Trouble } from "../parts";
import { table, tick } from "../store";
import { ThreeWay } from "../threeway";
import { FLAGS, UNKNOWN } from "../table";
import type { DiffDocument } from "../wire";
import { count } from "../words";
import { Decide } from "./decide";

/** How many differences are asked for without a click. */
const OPEN = 6;

function isConflict(index: number): boolean {
  const objects = table.value!;
  return (objects.state[index] ?? -1) >= 0 && objects.stateName(objects.state[index] ?? -1) === "conflict";
}

export function DriftView() {
  tick.value;
  const objects = table.value;
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [shown, setShown] = useState(100);
  if (!objects) return null;
  const conflicts: number[] = [];
  const drifts: number[] = [];
  for (let index = 0; index < objects.size; index++) {
    if (isConflict(index)) conflicts.push(index);
    else if ((objects.flags[index] ?? 0) & FLAGS.drift) drifts.push(index);
  }
  const hostCount = new Set([...conflicts, ...drifts].map((index) => objects.host[index])).size;
  const choose = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    setChosen(next);
  };
  const decide = (keep: "model" | "host") => {
    proposal.value = [...chosen].map((cob) => ({ order: "resolve", cob, keep }));
    setChosen(new Set());
  };
  const all = conflicts.map((index) => objects.ids[index]!);
  return (
    <div class="view">
      <h1>
        {conflicts.length + drifts.length === 0
          ? "No host has local changes"
          : `${both(conflicts.length, drifts.length)} on ${count(hostCount, "host")}`}
      </h1>
      {conflicts.length + drifts.length === 0 && <Empty>All files are as the model says, as far as the last checks have seen.</Empty>}
      {conflicts.length > 0 && (
        <section class="panel" aria-labelledby="conflicts">
          <header>
            <h2 id="conflicts">Conflicts</h2>
            <span class="buttons">
              <button
                type="button"
                class="small"
                onClick={() => setChosen(chosen.size === all.length ? new Set() : new Set(all))}
              >
                {chosen.size === all.length ? "Choose none" : "Choose all"}
              </button>
              <button type="button" class="small" disabled={chosen.size === 0} onClick={() => decide("model")}>
                Keep the model's lines of {chosen.size}…
              </button>
              <button type="button" class="small" disabled={chosen.size === 0} onClick={() => decide("host")}>
                Keep the host's lines of {chosen.size}…
              </button>
            </span>
          </header>
          <p class="muted">A user and the model changed the same lines. The switch waits for a decision.</p>
          {conflicts.slice(0, shown).map((index, at) => {
            const id = objects.ids[index]!;
            return <Entry key={id} index={index} open={at < OPEN} chosen={chosen.has(id)} onChoose={() => choose(id)} />;
          })}
        </section>
      )}
      {drifts.length > 0 && (
        <section class="panel" aria-labelledby="drifts">
          <header>
            <h2 id="drifts">Drift</h2>
          </header>
          <p class="muted">Files that others changed on the host. The model's text comes back with the next change, or at once, as the kind says.</p>
          {drifts.slice(0, shown).map((index, at) => (
            <Entry key={objects.ids[index]} index={index} open={at < OPEN} />
          ))}
        </section>
      )}
      {Math.max(conflicts.length, drifts.length) > shown && (
        <button type="button" onClick={() => setShown(shown * 10)}>
          Show more
        </button>
      )}
    </div>
  );
}

function both(conflicts: number, drifts: number): string {
  const words: string[] = [];
  if (conflicts > 0) words.push(count(conflicts, "conflict"));
  if (drifts > 0) words.push(`${count(drifts, "object")} with drift`);
  return words.join(" and ");
}

function Entry({ index, open, chosen, onChoose }: { index: number; open: boolean; chosen?: boolean; onChoose?: () => void }) {
  const objects = table.value!;
  const id = objects.ids[index]!;
  const [shown, setShown] = useState(open);
  return (
    <article class="drift-entry" aria-label={id}>
      <header>
        {onChoose && <input type="checkbox" checked={chosen ?? false} onChange={onChoose} aria-label={`Choose ${id}`} />}
        <Mark cls={objects.cls[index] ?? UNKNOWN} />
        <span class="grow">
          <CobLink id={id} /> <StateWords index={index} />{" "}
          <span class="muted">
            for <Since ms={objects.since[index] ?? 0} />
          </span>
        </span>
        {onChoose && <Decide id={id} />}
        <button type="button" class="small" aria-expanded={shown} onClick={() => setShown(!shown)}>
          {shown ? "Hide" : "Differences"}
        </button>
      </header>
      {shown && <Difference id={id} conflict={onChoose !== undefined} refresh={`${objects.since[index]} ${objects.flags[index]}`} />}
    </article>
  );
}

function Difference({ id, conflict, refresh }: { id: string; conflict: boolean; refresh: string }) {
  const diff = useAsk<DiffDocument>("diff", { cob: id }, refresh, 3000);
  const document = diff.value?.answer;
  const conflicts = document?.conflicts ?? [];
  return (
    <>
      {diff.loading && <Loading />}
      <Trouble error={diff.error} hints={diff.hints} again={diff.again} />
      {conflicts.map((one) => (
        <div key={one.path}>
          <p class="with-buttons">
            <code>{one.path}</code> <span class="muted grow">{one.what}</span>
            {conflict && conflicts.length > 1 && <Decide id={id} path={one.path} />}
          </p>
          {one.hunks && <ThreeWay text={one.hunks} />}
        </div>
      ))}
      {document?.text?.trim() && !conflicts.some((one) => one.hunks) && <Hunks text={document.text} legend />}
      {document && !document.text?.trim() && conflicts.length === 0 && <Empty>No difference is left.</Empty>}
    </>
  );
}
