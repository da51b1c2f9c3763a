// The cluster at a glance: one sentence, numbers, hosts, transitions, and what needs a person.
import { useEffect } from "preact/hooks";
import { orderOf } from "../api";
import { useAsk } from "../load";
import { Command, Copy, Empty, HOST_CLASS, HostLink, Mark, Section, Text } from "../parts";
import { drawer, propose } from "../proposal";
import { address } from "../route";
import { cluster, counts, hosts, now, operator, orders, table, tick } from "../store";
import { CLASSES, FAILED, FLAGS, MOVING, noFilter, select, sortPlaces, STOPPED, UNKNOWN, WAITING } from "../table";
import type { Cluster, Host, Whoami } from "../wire";
import { count, span } from "../words";
import { ObjectRows } from "./rows";

const VERDICT_CLASS = { converged: 0, not: 2, unreached: 5 };

export function ClusterView() {
  const state = cluster.value;
  if (!state || !table.value) return null;
  return (
    <div class="view cluster">
      <Verdict state={state} />
      <Numbers />
      <div class="columns">
        <div class="stack">
          <NeedsPerson />
          <Hosts />
        </div>
        <div class="stack">
          <Transitions />
          <Orders />
        </div>
      </div>
    </div>
  );
}

function verdictClass(state: Cluster): number {
  if (state.verdict === "not" && (counts.value[FAILED] ?? 0) > 0) return FAILED;
  if (state.verdict === "not" && (counts.value[MOVING] ?? 0) > 0) return MOVING;
  return VERDICT_CLASS[state.verdict];
}

function Verdict({ state }: { state: Cluster }) {
  const cls = verdictClass(state);
  const reasons = state.reasons.filter((reason) => reason !== state.sentence);
  return (
    <section class={`verdict soft-${CLASSES[cls]}`} aria-label="State of the cluster">
      <Mark cls={cls} />
      <div class="verdict-text">
        <h1>
          <Text>{state.sentence}</Text>
        </h1>
        {reasons.length > 0 && (
          <ul class="reasons">
            {reasons.slice(0, 6).map((reason) => (
              <li key={reason}>
                <Text>{reason}</Text>
              </li>
            ))}
            {reasons.length > 6 && <li class="muted">and {count(reasons.length - 6, "more reason")}</li>}
          </ul>
        )}
        {state.next && (
          <p class="next">
            <span class="muted">Next:</span>
            <Command text={state.next} primary />
            {!orderOf(state.next) && <Copy text={state.next} />}
          </p>
        )}
      </div>
      <dl class="facts">
        <div>
          <dt>Generation</dt>
          <dd>
            {state.generation === undefined ? "none" : <a href={address("switch", String(state.generation))}>{state.generation}</a>}
          </dd>
        </div>
        {state.newest !== undefined && state.newest !== state.generation && (
          <div>
            <dt>Newest in the depot</dt>
            <dd>
              <a href={address("switch", String(state.newest))}>{state.newest}</a>
            </dd>
          </div>
        )}
        <div>
          <dt>Hosts</dt>
          <dd>
            <a href={address("hosts")}>{hosts.value.length}</a>
          </dd>
        </div>
      </dl>
    </section>
  );
}

const TILES = [FAILED, UNKNOWN, STOPPED, WAITING, MOVING, 0];

function Numbers() {
  tick.value;
  const objects = table.value!;
  const flags = [
    { flag: "stuck", words: "stuck or flapping" },
    { flag: "drift", words: "with drift" },
    { flag: "departs", words: "departing" },
    { flag: "observed", words: "observed only" },
  ] as const;
  return (
    <nav class="numbers" aria-label="Objects by class">
      {TILES.map((cls) => {
        const number = counts.value[cls] ?? 0;
        return (
          <a key={cls} class={`tile ${number === 0 ? "zero" : `c-${CLASSES[cls]}`}`} href={address("objects", "", { class: CLASSES[cls]! })}>
            <Mark cls={cls} />
            <b class="number">{number.toLocaleString("en")}</b>
            <span>{CLASSES[cls]}</span>
          </a>
        );
      })}
      <div class="tile-flags">
        {flags.map(({ flag, words }) => {
          const number = objects.countFlag(FLAGS[flag]);
          return (
            <a key={flag} class={number === 0 ? "zero" : ""} href={address("objects", "", { flag })}>
              <b class="number">{number.toLocaleString("en")}</b> {words}
            </a>
          );
        })}
      </div>
    </nav>
  );
}

function Rows({ places, most, more }: { places: number[]; most: number; more: Record<string, string> }) {
  return (
    <>
      <ObjectRows places={places.slice(0, most)} />
      {places.length > most && (
        <p class="more">
          <a href={address("objects", "", more)}>All {places.length.toLocaleString("en")}</a>
        </p>
      )}
    </>
  );
}

function NeedsPerson() {
  tick.value;
  const objects = table.value!;
  const all = select(objects, { ...noFilter(), person: true });
  const places = sortPlaces(objects, all, "problem", false);
  const failed = counts.value[FAILED] ?? 0;
  return (
    <Section
      title="Needs a person"
      more={
        failed > 0 && (
          <button type="button" class="small" onClick={() => propose({ order: "retry" })}>
            Retry all failed
          </button>
        )
      }
    >
      {places.length === 0 ? (
        <Empty>No object needs a person.</Empty>
      ) : (
        <Rows places={places} most={8} more={{ person: "1" }} />
      )}
    </Section>
  );
}

function Transitions() {
  tick.value;
  const objects = table.value!;
  const moving: number[] = [];
  for (let index = 0; index < objects.size; index++) if (objects.cls[index] === MOVING) moving.push(index);
  const waiting = counts.value[WAITING] ?? 0;
  return (
    <Section
      title="Running now"
      more={
        waiting > 0 && (
          <a href={address("objects", "", { class: "waiting" })}>
            {waiting.toLocaleString("en")} {waiting === 1 ? "waits" : "wait"}
          </a>
        )
      }
    >
      {moving.length === 0 ? <Empty>No transition or check runs.</Empty> : <Rows places={moving} most={8} more={{ class: "moving" }} />}
    </Section>
  );
}

const MARK_ORDER = { bad: 0, unknown: 1, busy: 2, good: 3 };

/** Hosts with the same state in words and the same generation. */
function groupHosts(list: Host[]): { words: string; mark: Host["mark"]; generation: number | undefined; hosts: Host[] }[] {
  const groups = new Map<string, { words: string; mark: Host["mark"]; generation: number | undefined; hosts: Host[] }>();
  for (const host of list) {
    const key = `${host.mark}\n${host.words}\n${host.generation ?? ""}`;
    const group = groups.get(key);
    if (group) group.hosts.push(host);
    else groups.set(key, { words: host.words, mark: host.mark, generation: host.generation, hosts: [host] });
  }
  return [...groups.values()].sort((a, b) => MARK_ORDER[a.mark] - MARK_ORDER[b.mark] || b.hosts.length - a.hosts.length);
}

function Hosts() {
  const groups = groupHosts(hosts.value);
  const most = 12;
  return (
    <Section title="Hosts" more={<a href={address("hosts")}>All {count(hosts.value.length, "host")}</a>}>
      <ul class="rows">
        {groups.slice(0, 12).map((group) => (
          <li key={`${group.mark}${group.words}${group.generation}`}>
            <Mark cls={HOST_CLASS[group.mark]} />
            <span class="grow">
              {group.hosts.length > 1 && (
                <>
                  <a
                    class="number"
                    href={address("hosts", "", {
                      mark: group.mark,
                      q: group.words,
                      ...(group.generation === undefined ? {} : { generation: String(group.generation) }),
                    })}
                  >
                    {count(group.hosts.length, "host")}
                  </a>{" "}
                </>
              )}
              <span class="names">
                {group.hosts.slice(0, most).map((host) => (
                  <HostLink key={host.name} name={host.name} />
                ))}
                {group.hosts.length > most && <span class="muted">…</span>}
              </span>
              <span class="line">
                <Text>{group.words}</Text>
              </span>
            </span>
            <span class="muted nowrap">{group.generation === undefined ? "no generation" : `generation ${group.generation}`}</span>
          </li>
        ))}
        {groups.length > 12 && (
          <li>
            <a href={address("hosts")}>All {count(hosts.value.length, "host")}</a>
          </li>
        )}
      </ul>
    </Section>
  );
}

/** Asks once under which name and role orders are given. */
function useOperator(): string {
  const asked = useAsk<Whoami>("whoami", operator.value ? null : {});
  useEffect(() => {
    const known = (asked.value?.answer?.hosts ?? []).filter((host) => host.reachable && host.role);
    const names = [...new Set(known.map((host) => `${host.name ?? "unnamed"} (${host.role})`))];
    if (names.length > 0) operator.value = names.join(", ");
  }, [asked.value]);
  return operator.value;
}

function Orders() {
  const name = useOperator();
  const list = [...orders.value].reverse();
  const running = list.filter((order) => order.ended_ms === undefined);
  const shown = running.length > 0 ? running : list.slice(0, 3);
  const paused = hosts.value.filter((host) => host.paused || host.held !== undefined).length;
  return (
    <Section
      title="Orders"
      more={
        <span class="buttons">
          <button type="button" class="small" onClick={() => propose({ order: "check" })}>
            Check now
          </button>
          {paused > 0 && (
            <button type="button" class="small" onClick={() => propose({ order: "resume" })}>
              Resume
            </button>
          )}
          {paused < hosts.value.length && (
            <button type="button" class="small" onClick={() => propose({ order: "pause" })}>
              Pause
            </button>
          )}
        </span>
      }
    >
      {shown.length === 0 ? (
        <Empty>No order was given from this page.</Empty>
      ) : (
        <ul class="rows">
          {shown.map((order) => (
            <li key={order.id}>
              <Mark cls={order.ended_ms === undefined ? MOVING : order.exit === 0 ? 0 : FAILED} />
              <span class="grow">
                <code>{order.words}</code>
              </span>
              <button type="button" class="small" onClick={() => (drawer.value = true)}>
                Output
              </button>
              <span class="muted number nowrap">
                {order.ended_ms === undefined
                  ? `for ${span(now.value - order.began_ms)}`
                  : `${order.exit === 0 ? "done" : `exit ${order.exit}`} in ${span(order.ended_ms - order.began_ms)}`}
              </span>
            </li>
          ))}
        </ul>
      )}
      {name && <p class="muted operator">Orders are given as {name}.</p>}
    </Section>
  );
}

