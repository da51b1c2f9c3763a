// An object: its state, why it is in that state, history, output, differences, dependencies, orders.
import { useState } from "preact/hooks";
import { get } from "../api";
import { entryClass, eventWords } from "../entries";
import { Hunks } from "../hunks";
import { useAsk, useLoad } from "../load";
import { At, Columns, Empty, FlagWords, HostLink, Loading, Mark, Section, Since, Text, Trouble } from "../parts";
import { propose } from "../proposal";
import { address } from "../route";
import { needs, table, tick } from "../store";
import { CLASSES, FAILED, hostOf, SETTLED, STOPPED, UNKNOWN } from "../table";
import { ThreeWay } from "../threeway";
import type { CobDocument, DiffDocument, HistoryEntry } from "../wire";
import { count } from "../words";
import { Decide } from "./decide";
import { ObjectRows } from "./rows";
import { Why } from "./why";

/** An object's values in the picture, as a text: another text means that the object changed. */
function versionOf(index: number): string {
  tick.value;
  const objects = table.value;
  if (!objects || index < 0) return "";
  return [objects.state[index], objects.target[index], objects.cls[index], objects.flags[index], objects.since[index]].join();
}

export function CobView({ id }: { id: string }) {
  const objects = table.value;
  const index = objects?.index(id) ?? -1;
  const version = versionOf(index);
  const cob = useLoad(index < 0 ? "" : id, (signal) => get<{ host_now_ms: number; cob: CobDocument }>("/api/cob", { id }, signal), version);
  if (!objects) return null;
  if (index < 0) return <Missing id={id} />;
  const cls = objects.cls[index] ?? UNKNOWN;
  const kind = objects.kinds[objects.kind[index] ?? -1] ?? "";
  const document = cob.value?.cob;
  return (
    <div class="view">
      <header class={`title soft-${CLASSES[cls]}`}>
        <Mark cls={cls} />
        <div class="grow">
          <h1 class="id">{id}</h1>
          <p>
            <b class={`c-${CLASSES[cls]}`}>{CLASSES[cls]}</b> for <Since ms={objects.since[index] ?? 0} /> · {kind} on{" "}
            <HostLink name={hostOf(id)} /> <FlagWords flags={objects.flags[index] ?? 0} />
          </p>
        </div>
        <Buttons id={id} cls={cls} kind={kind} />
      </header>
      <div class="columns">
        <Section title="Why" class="wide-panel">
          <Why id={id} refresh={version} />
        </Section>
        <div class="stack">
          <Section title="State">
            <State index={index} document={document} />
            <Trouble error={cob.error} hints={cob.hints} again={cob.again} />
          </Section>
          <Output id={id} kind={kind} refresh={version} />
        </div>
        <Dependencies index={index} id={id} />
        {kind === "file-tree" && <Difference id={id} refresh={version} conflict={objects.stateName(objects.state[index] ?? -1) === "conflict"} />}
        <History id={id} refresh={version} />
      </div>
    </div>
  );
}

function Missing({ id }: { id: string }) {
  return (
    <div class="view">
      <h1 class="id">{id}</h1>
      <Empty>
        The picture has no object of this name. <a href={address("objects", "", { q: id.split("/").at(-1) ?? "" })}>Search</a>
      </Empty>
      <div class="columns">
        <History id={id} refresh="" />
      </div>
    </div>
  );
}

function Buttons({ id, cls, kind }: { id: string; cls: number; kind: string }) {
  return (
    <span class="buttons">
      {cls === FAILED && (
        <button type="button" class="primary" onClick={() => propose({ order: "retry", what: id })}>
          Retry
        </button>
      )}
      {cls === STOPPED ? (
        <button type="button" class="primary" onClick={() => propose({ order: "start", what: id })}>
          Start…
        </button>
      ) : (
        <>
          {kind === "service" && (
            <button type="button" onClick={() => propose({ order: "restart", what: id })}>
              Restart…
            </button>
          )}
          <button type="button" onClick={() => propose({ order: "stop", what: id })}>
            Stop…
          </button>
        </>
      )}
    </span>
  );
}

function State({ index, document }: { index: number; document: CobDocument | undefined }) {
  const objects = table.value!;
  const state = objects.state[index] ?? -1;
  const target = objects.target[index] ?? -1;
  const action = document?.action;
  const stopped = document?.stopped;
  return (
    <>
      <div class="path" aria-label="State and desired state">
        <span class="node now">{state < 0 ? "unknown" : objects.stateName(state)}</span>
        {target >= 0 && target !== state && (
          <>
            <span class="arrow" aria-label="goes to">
              →
            </span>
            <span class="node">{objects.stateName(target)}</span>
          </>
        )}
        {document && document.target !== null && document.target !== document.preferred && (
          <span class="muted">preferred: {document.preferred}</span>
        )}
      </div>
      <dl class="pairs">
        <dt>State now</dt>
        <dd>{state < 0 ? "unknown" : objects.stateName(state)}</dd>
        <dt>Desired</dt>
        <dd>{target < 0 ? "–" : objects.stateName(target)}</dd>
        <dt>Preferred</dt>
        <dd>{document?.preferred ?? "…"}</dd>
        {action && (
          <>
            <dt>{action.running ? "Running action" : "Last action"}</dt>
            <dd>
              {action.to ? `${action.from ?? "unknown"} → ${action.to}` : "check"}, attempt {action.attempt} of {action.of}
              {action.error && <span class="error-text">{action.error}</span>}
              {action.last_line && action.last_line !== action.error && <code class="last-line">{action.last_line}</code>}
            </dd>
          </>
        )}
        {stopped && (
          <>
            <dt>Stopped</dt>
            <dd>
              {stopped.who ? `by ${stopped.who}` : "by an operator"}
              {stopped.until_boot && ", until the next boot"}
              {stopped.with && (
                <>
                  , for <Text>{stopped.with}</Text>
                </>
              )}
            </dd>
          </>
        )}
        {document?.held_by && document.held_by.length > 0 && (
          <>
            <dt>Held by</dt>
            <dd>
              <ul class="plain-list">
                {document.held_by.slice(0, 12).map((holder) => (
                  <li key={holder.cob}>
                    <Text>{holder.cob}</Text> in {holder.state}
                    {holder.recalled && ", recalled"}
                  </li>
                ))}
                {document.held_by.length > 12 && <li class="muted">and {count(document.held_by.length - 12, "more holder")}</li>}
              </ul>
            </dd>
          </>
        )}
        {document?.drift && document.drift.length > 0 && (
          <>
            <dt>Drift</dt>
            <dd>
              <ul class="plain-list">
                {document.drift.map((file) => (
                  <li key={file.path}>
                    <code>{file.path}</code>
                    {file.changed_s !== undefined && (
                      <>
                        {" "}
                        changed <At ms={file.changed_s * 1000} />
                      </>
                    )}
                    {file.owner && `, owner ${file.owner}`}
                    {file.logged_in && file.logged_in.length > 0 && `, logged in: ${file.logged_in.join(", ")}`}
                  </li>
                ))}
              </ul>
            </dd>
          </>
        )}
      </dl>
    </>
  );
}

function Difference({ id, refresh, conflict }: { id: string; refresh: string; conflict: boolean }) {
  const diff = useAsk<DiffDocument>("diff", { cob: id }, refresh, 3000);
  const document = diff.value?.answer;
  const conflicts = document?.conflicts ?? [];
  return (
    <Section title="Differences" class="wide-panel">
      {diff.loading && <Loading />}
      <Trouble error={diff.error} hints={diff.hints} again={diff.again} />
      {document && conflicts.length === 0 && !document.text?.trim() && <Empty>The files are as the model says.</Empty>}
      {conflicts.map((one) => (
        <div key={one.path}>
          <p class="with-buttons">
            <code>{one.path}</code> {one.what}
            <Decide id={id} path={one.path} />
          </p>
          {one.hunks && <ThreeWay text={one.hunks} />}
        </div>
      ))}
      {document?.text?.trim() && (conflicts.length === 0 || !conflicts.some((one) => one.hunks)) && <Hunks text={document.text} legend />}
      {conflict && conflicts.length === 0 && document && <Decide id={id} />}
    </Section>
  );
}

function Dependencies({ index, id }: { index: number; id: string }) {
  const { out, into } = needs.value;
  const lists = [
    { words: "Needs", places: out[index] ?? [] },
    { words: "Needed by", places: into[index] ?? [] },
  ];
  return (
    <Section title="Dependencies" more={<a href={address("graph", "", { at: id })}>Graph</a>}>
      {lists.map(({ words, places }) => (
        <List key={words} words={words} places={places} />
      ))}
    </Section>
  );
}

function List({ words, places }: { words: string; places: number[] }) {
  const [all, setAll] = useState(false);
  const objects = table.value!;
  const urgent = (index: number) => (objects.cls[index] === SETTLED ? 1 : 0);
  const sorted = [...places].sort((a, b) => urgent(a) - urgent(b) || a - b);
  return (
    <>
      <h3>
        {words} <span class="number muted">{places.length}</span>
      </h3>
      {places.length === 0 ? <Empty>None.</Empty> : <ObjectRows places={all ? sorted : sorted.slice(0, 10)} />}
      {!all && places.length > 10 && (
        <button type="button" class="small" onClick={() => setAll(true)}>
          All {places.length}
        </button>
      )}
    </>
  );
}

function Output({ id, kind, refresh }: { id: string; kind: string; refresh: string }) {
  const output = useAsk<{ output?: string }>("output", { cob: id }, refresh, 2000);
  const [logs, setLogs] = useState(false);
  const text = output.value?.answer?.output ?? "";
  return (
    <Section
      title="Output"
      more={
        kind === "service" && (
          <button type="button" class="small" aria-pressed={logs} onClick={() => setLogs(!logs)}>
            Log of the service
          </button>
        )
      }
    >
      <h3>Last action</h3>
      {output.loading ? (
        <Loading />
      ) : text ? (
        <pre class="output" tabIndex={0} aria-label="Output of the last action">
          {text}
        </pre>
      ) : (
        <Empty>{output.error || "The last action printed no text."}</Empty>
      )}
      {logs && <Logs id={id} refresh={refresh} />}
    </Section>
  );
}

function Logs({ id, refresh }: { id: string; refresh: string }) {
  const logs = useAsk<{ text?: string } | { text?: string }[]>("logs", { cob: id, lines: "200" }, refresh, 2000);
  const answer = logs.value?.answer;
  const text = (Array.isArray(answer) ? answer : answer ? [answer] : []).map((part) => part.text ?? "").join("");
  return (
    <>
      <h3>
        Log{" "}
        <button type="button" class="small" onClick={logs.again}>
          Read again
        </button>
      </h3>
      {logs.loading && <Loading />}
      <Trouble error={logs.error} hints={logs.hints} />
      {text && (
        <pre class="output" tabIndex={0} aria-label="Log of the service">
          {text}
        </pre>
      )}
    </>
  );
}

/** The detail of an entry; a difference can be unfolded. */
function Detail({ text, id }: { text: string; id: string }) {
  if (!text.includes("\n")) return <Text without={id}>{text}</Text>;
  return (
    <details>
      <summary>{text.includes("@@") ? "difference" : text.split("\n")[0]}</summary>
      <Hunks text={text} />
    </details>
  );
}

function History({ id, refresh }: { id: string; refresh: string }) {
  const [limit, setLimit] = useState(30);
  const history = useAsk<HistoryEntry[]>("history", { cob: id, limit: String(limit) }, refresh, 2000);
  const answer = history.value?.answer;
  const entries = (Array.isArray(answer) ? answer : answer ? [answer as HistoryEntry] : []).filter(
    (entry) => typeof entry.event === "string",
  );
  return (
    <Section title="History" class="wide-panel">
      {history.loading && <Loading />}
      <Trouble error={history.error} hints={history.hints} again={history.again} />
      {entries.length > 0 && (
        <div class="scroll-x">
          <table class="list">
            <Columns of={["Time", "Event", "States", "Detail", ["Generation", "right"]]} />
            <tbody>
              {[...entries].reverse().map((entry) => {
                const result = entryClass(entry);
                return (
                  <tr key={`${entry.host}${entry.lamport}${entry.seq}`}>
                    <td class="nowrap">
                      <At ms={entry.ts_ns / 1e6} withMs />
                    </td>
                    <td>
                      <span class="with-mark">
                        {result !== null && <Mark cls={result} />}
                        <span>{eventWords(entry)}</span>
                      </span>
                    </td>
                    <td class="nowrap">
                      {entry.from && `${entry.from} → `}
                      {entry.to}
                    </td>
                    <td class="detail">{entry.detail && <Detail text={entry.detail} id={id} />}</td>
                    <td class="right number">{entry.generation}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      {!history.loading && !history.error && entries.length === 0 && <Empty>The histories have no entry.</Empty>}
      {entries.length >= limit && (
        <button type="button" class="small" onClick={() => setLimit(limit * 4)}>
          Older entries
        </button>
      )}
    </Section>
  );
}
