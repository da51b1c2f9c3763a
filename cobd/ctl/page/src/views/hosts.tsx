// The list of hosts, and a single host.
import { useState } from "preact/hooks";
import { useAsk } from "../load";
import { CobLink, CountLink, Empty, HOST_CLASS, HostLink, Mark, Section, Text, Trouble } from "../parts";
import { propose } from "../proposal";
import { address, here, setParams } from "../route";
import { counts, hosts, table, tick } from "../store";
import { CLASSES, sortPlaces } from "../table";
import type { Explained, ExplainedHost, Host, HostMark } from "../wire";
import { count } from "../words";
import { ObjectRows } from "./rows";
import { Explanation } from "./why";

const MARK_ORDER: Record<HostMark, number> = { bad: 0, unknown: 1, busy: 2, good: 3 };
const MARKS: HostMark[] = ["bad", "unknown", "busy", "good"];
const MARK_WORDS: Record<HostMark, string> = { bad: "in trouble", unknown: "unknown", busy: "busy", good: "good" };

export function HostsView() {
  const { params } = here.value;
  const [most, setMost] = useState(200);
  const mark = params.get("mark") ?? "";
  const generation = params.get("generation") ?? "";
  const text = (params.get("q") ?? "").toLowerCase();
  const passes = (host: Host) =>
    (mark === "" || host.mark === mark) &&
    (generation === "" || String(host.generation ?? "none") === generation) &&
    (text === "" || `${host.name} ${host.words}`.toLowerCase().includes(text));
  const list = hosts.value
    .filter(passes)
    .sort((a, b) => MARK_ORDER[a.mark] - MARK_ORDER[b.mark] || a.name.localeCompare(b.name, "en", { numeric: true }));
  const change = (name: string, value: string) => {
    const next = new URLSearchParams(params);
    if (value) next.set(name, value);
    else next.delete(name);
    setParams(next);
  };
  const generations = [...new Set(hosts.value.map((host) => String(host.generation ?? "none")))].sort();
  return (
    <div class="view">
      <h1 class="hidden">Hosts</h1>
      <div class="filters" role="search">
        <div class="chips" role="group" aria-label="States">
          {MARKS.map((name) => (
            <button
              key={name}
              type="button"
              class={`chip c-${CLASSES[HOST_CLASS[name]]}`}
              aria-pressed={mark === name}
              onClick={() => change("mark", mark === name ? "" : name)}
            >
              <Mark cls={HOST_CLASS[name]} />
              <span class="chip-word">{MARK_WORDS[name]}</span>
              <b class="number">{hosts.value.filter((host) => host.mark === name).length}</b>
            </button>
          ))}
        </div>
        <div class="fields">
          <input
            type="search"
            placeholder="Filter by name or state"
            aria-label="Filter by name or state"
            value={params.get("q") ?? ""}
            onInput={(event) => change("q", event.currentTarget.value)}
          />
          <select aria-label="Generation" value={generation} onChange={(event) => change("generation", event.currentTarget.value)}>
            <option value="">all generations</option>
            {generations.map((name) => (
              <option key={name} value={name}>
                {name === "none" ? "no generation" : `generation ${name}`}
              </option>
            ))}
          </select>
          <span class="muted number" role="status">
            {count(list.length, "host")}
          </span>
        </div>
      </div>
      <div class="scroll-x panel">
        <table class="list">
          <thead>
            <tr>
              <th scope="col">Host</th>
              <th scope="col">State</th>
              <th scope="col" class="right">
                Generation
              </th>
              {CLASSES.map((name, cls) => (
                <th key={name} scope="col" class="right wide" title={name}>
                  <Mark cls={cls} />
                  <span class="hidden">{name}</span>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {list.slice(0, most).map((host) => (
              <tr key={host.name}>
                <th scope="row">
                  <HostLink name={host.name} />
                </th>
                <td>
                  <span class="with-mark">
                    <Mark cls={HOST_CLASS[host.mark]} />
                    <span>
                      <Text without={host.name}>{host.words}</Text>
                    </span>
                  </span>
                </td>
                <td class="right number">
                  {host.generation ?? "–"}
                  {host.switching_to !== undefined && ` → ${host.switching_to}`}
                </td>
                {CLASSES.map((name, cls) => (
                  <td key={name} class="right wide">
                    <CountLink
                      number={host.counts[cls] ?? 0}
                      params={{ class: name, host: host.name }}
                      label={`${host.counts[cls] ?? 0} ${name} on ${host.name}`}
                    />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {list.length > most && (
        <button type="button" onClick={() => setMost(list.length)}>
          Show all {list.length}
        </button>
      )}
      {list.length === 0 && <Empty>No host passes the filter.</Empty>}
    </div>
  );
}

/** Explanations with the same first cause, together. */
function byFirstCause(list: Explained[]): Explained[][] {
  const groups = new Map<string, Explained[]>();
  for (const one of list) {
    const key = `${one.first_cause.cob} ${one.first_cause.text}`;
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  return [...groups.values()];
}

export function HostView({ name }: { name: string }) {
  const host = hosts.value.find((candidate) => candidate.name === name);
  const objects = table.value;
  tick.value;
  const explained = useAsk<ExplainedHost>("explain", host ? { what: name } : null, host?.words, 2000);
  if (!objects) return null;
  if (!host) return <Empty>The picture has no host {name}.</Empty>;
  const causes = byFirstCause(explained.value?.answer?.waits ?? []);
  const at = objects.hosts.indexOf(name);
  const places = objects.ids.flatMap((_, index) => (objects.host[index] === at ? [index] : []));
  const running = places.filter((index) => objects.cls[index] !== 4).length;
  return (
    <div class="view">
      <header class={`title soft-${CLASSES[HOST_CLASS[host.mark]]}`}>
        <Mark cls={HOST_CLASS[host.mark]} />
        <div class="grow">
          <h1 class="id">{name}</h1>
          <p>
            <Text without={name}>{host.words}</Text>
          </p>
        </div>
        <span class="buttons">
          <a class="button" href={address("objects", "", { host: name })}>
            Objects
          </a>
          {running > 0 && (
            <button type="button" onClick={() => propose({ order: "stop", what: name })}>
              Stop services…
            </button>
          )}
          {(counts.value[4] ?? 0) > 0 && places.some((index) => objects.cls[index] === 4) && (
            <button type="button" onClick={() => propose({ order: "start", what: name })}>
              Start
            </button>
          )}
        </span>
      </header>
      <div class="columns">
        <Section title="State">
          {host.error && <Trouble error={host.error} />}
          <p class="why-sentence">
            {explained.value?.answer ? <Text>{explained.value.answer.answer}</Text> : <span class="muted">Asking…</span>}
          </p>
          <Trouble error={explained.error} hints={explained.hints} />
          <dl class="pairs">
            <dt>Generation</dt>
            <dd>
              {host.generation === undefined ? "none" : <a href={address("switch", String(host.generation))}>{host.generation}</a>}
              {host.switching_to !== undefined && (
                <>
                  {" → "}
                  <a href={address("switch", String(host.switching_to))}>{host.switching_to}</a>
                </>
              )}
            </dd>
            <dt>Address</dt>
            <dd class="id">{host.listen ?? "–"}</dd>
            <dt>Lost peers</dt>
            <dd>{host.peers_down?.length ? host.peers_down.map((peer) => <HostLink key={peer} name={peer} />) : "none"}</dd>
            {host.waits_for_window && (
              <>
                <dt>Waits for</dt>
                <dd>{host.waits_for_window}</dd>
              </>
            )}
            {host.switch && (
              <>
                <dt>Last switch</dt>
                <dd>
                  to {host.switch.to}: {host.switch.stage}
                  {host.switch.why && `, ${host.switch.why}`}
                </dd>
              </>
            )}
          </dl>
        </Section>
        <Section title="Objects" more={<a href={address("objects", "", { host: name })}>{count(places.length, "object")}</a>}>
          <ObjectRows places={sortPlaces(objects, places, "problem", false).slice(0, 50)} />
        </Section>
        {causes.length > 0 && (
          <Section title="Why" class="wide-panel" more={<span class="muted">{count(causes.length, "first cause")}</span>}>
            {causes.slice(0, 10).map((list) => (
              <article key={list[0]!.cob} class="host-why">
                <Explanation document={list[0]!} />
                {list.length > 1 && (
                  <p class="muted same-cause">
                    The same first cause:{" "}
                    {list.slice(1, 12).map((one, place) => (
                      <span key={one.cob}>
                        {place > 0 && ", "}
                        <CobLink id={one.cob} />
                      </span>
                    ))}
                    {list.length > 12 && ` and ${list.length - 12} more`}
                  </p>
                )}
              </article>
            ))}
          </Section>
        )}
      </div>
    </div>
  );
}
