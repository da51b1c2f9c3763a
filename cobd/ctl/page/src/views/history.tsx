// The history of the cluster: orders, transitions, failures, drift.
import { useMemo, useState } from "preact/hooks";
import { entryClass, eventWords, filtered, isOf, merged, SORTS_OF_ENTRIES, type EntrySort, type Merged } from "../entries";
import { useAsk } from "../load";
import { At, CobLink, HostLink, Mark, Text, Trouble } from "../parts";
import { cobAddress, go, here, hostAddress, setParams } from "../route";
import { tick } from "../store";
import { CLASSES } from "../table";
import { narrow } from "../theme";
import type { HistoryEntry } from "../wire";
import { count } from "../words";
import { Virtual } from "../virtual";

export function HistoryView() {
  const { params } = here.value;
  const limit = Number(params.get("limit")) || 500;
  const asked = useAsk<HistoryEntry[]>("history", { limit: String(limit) }, tick.value, 5000);
  const [active, setActive] = useState(-1);
  const answer = asked.value?.answer;
  const entries = useMemo(
    () => (Array.isArray(answer) ? answer : []).filter((entry) => typeof entry.event === "string"),
    [answer],
  );
  const sorts = (params.get("of") ?? "").split(",").filter((name): name is EntrySort => (SORTS_OF_ENTRIES as readonly string[]).includes(name));
  const text = params.get("q") ?? "";
  const shown = useMemo(() => merged(filtered(entries, sorts, text)), [entries, sorts.join(), text]);
  const change = (name: string, value: string) => {
    const next = new URLSearchParams(params);
    if (value) next.set(name, value);
    else next.delete(name);
    setParams(next);
  };
  const toggle = (sort: EntrySort) =>
    change("of", (sorts.includes(sort) ? sorts.filter((other) => other !== sort) : [...sorts, sort]).join(","));
  const open = (at: number) => {
    const entry = shown[at]?.entry;
    if (entry) go(entry.cob ? cobAddress(entry.cob) : hostAddress(entry.host));
  };
  return (
    <div class="view fill">
      <h1 class="hidden">History</h1>
      <div class="filters" role="search">
        <div class="chips" role="group" aria-label="Sorts of entries">
          {SORTS_OF_ENTRIES.map((sort) => (
            <button key={sort} type="button" class="chip" aria-pressed={sorts.includes(sort)} onClick={() => toggle(sort)}>
              {sort} <b class="number">{entries.filter((entry) => isOf(entry, sort)).length}</b>
            </button>
          ))}
        </div>
        <div class="fields">
          <input
            type="search"
            placeholder="Filter by name, event, operator"
            aria-label="Filter by name, event or operator"
            value={text}
            onInput={(event) => change("q", event.currentTarget.value)}
          />
          <span class="muted number grow" role="status">
            {asked.loading ? "Loading…" : `${count(shown.length, "row")} of the last ${count(entries.length, "entry")}`}
          </span>
          {entries.length >= limit && limit < 2000 && (
            <button type="button" class="small" onClick={() => change("limit", "2000")}>
              Older entries
            </button>
          )}
        </div>
      </div>
      <Trouble error={asked.error} hints={asked.hints} again={asked.again} />
      <Virtual
        id="history"
        class="history"
        label="History, newest first"
        role="grid"
        count={shown.length}
        columns={5}
        rowHeight={narrow.value ? 56 : 32}
        active={active}
        onActive={setActive}
        keyOf={(at) => {
          const { entry } = shown[at]!;
          return `${entry.host} ${entry.seq} ${entry.lamport} ${at}`;
        }}
        onOpen={open}
        head={
          <>
            {["Time", "Object", "Event", "States", "Detail"].map((words) => (
              <div key={words} role="columnheader" class={`cell cell-${words.toLowerCase()}`}>
                {words}
              </div>
            ))}
          </>
        }
        row={(at) => <Cells {...shown[at]!} />}
      />
    </div>
  );
}

function Cells({ entry, hosts }: Merged) {
  const cls = entryClass(entry);
  return (
    <>
      <div role="gridcell" class="cell cell-time muted">
        <At ms={entry.ts_ns / 1e6} />
      </div>
      <div role="gridcell" class="cell cell-object">
        {entry.cob ? <CobLink id={entry.cob} /> : hosts.length > 1 ? <span title={hosts.join(", ")}>{count(hosts.length, "host")}</span> : <HostLink name={entry.host} />}
      </div>
      <div role="gridcell" class={`cell cell-event ${cls === null ? "" : `c-${CLASSES[cls]}`}`}>
        {cls !== null && <Mark cls={cls} />} {eventWords(entry)}
      </div>
      <div role="gridcell" class="cell cell-states">
        {entry.from && `${entry.from} → `}
        {entry.to}
      </div>
      <div role="gridcell" class="cell cell-detail muted">
        {entry.detail && <Text without={entry.cob ?? entry.host}>{entry.detail.split("\n").find((line) => /^[-+][^-+]/.test(line)) ?? entry.detail.split("\n")[0] ?? ""}</Text>}
      </div>
    </>
  );
}
