// The generations of the depot, the switches to them, and what a switch would change.
import { Interruptions, plansOf } from "../dialog";
import { Hunks } from "../hunks";
import { useAsk } from "../load";
import { At, CobLink, Columns, Empty, HostLink, Loading, Mark, Section, Text, Trouble } from "../parts";
import { propose } from "../proposal";
import { address, here, setParams } from "../route";
import { cluster } from "../store";
import { CLASSES } from "../table";
import type { ChangedCob, Changes, GenerationEntry, Outcome, Plan } from "../wire";
import { count, span } from "../words";
import { outcomesOf } from "./course";
import { WhatIf } from "./faults";
import { resultClass, resultWords } from "./switch";

export function GenerationsView() {
  const state = cluster.value;
  const listed = useAsk<GenerationEntry[]>("generations", {}, state?.newest);
  const outcomes = useAsk<{ outcomes: Outcome[] }>("outcomes", {}, state?.sentence, 3000);
  const chosen = Number(here.value.params.get("changes") ?? "") || null;
  const generations = listed.value?.answer ?? [];
  const past = outcomesOf(outcomes.value?.answer);
  return (
    <div class="view">
      <h1 class="hidden">Generations</h1>
      <Section title="Generations" class={listed.loading ? "reserve" : ""} more={<span class="muted">newest first</span>}>
        {listed.loading && <Loading />}
        <Trouble error={listed.error} hints={listed.hints} again={listed.again} />
        {!listed.loading && generations.length === 0 && !listed.error && <Empty>The depot has no generation.</Empty>}
        <ol class="generations">
          {generations.map((one) => (
            <Generation key={one.generation} one={one} outcome={past.findLast((outcome) => outcome.to === one.generation)} outcomesKnown={!outcomes.loading} chosen={chosen} />
          ))}
        </ol>
      </Section>
      <Switches past={past} loading={outcomes.loading} error={outcomes.error} hints={outcomes.hints} again={outcomes.again} />
    </div>
  );
}

interface GenerationProps {
  one: GenerationEntry;
  outcome: Outcome | undefined;
  outcomesKnown: boolean;
  chosen: number | null;
}

function Generation({ one, outcome, outcomesKnown, chosen }: GenerationProps) {
  const active = cluster.value?.generation;
  const isActive = active === one.generation;
  const back = active !== undefined && one.generation < active;
  const open = chosen === one.generation;
  const toggle = () => setParams(new URLSearchParams(open ? "" : `changes=${one.generation}`));
  return (
    <li class={isActive ? "is-active" : ""}>
      <div class="generation">
        <a class="generation-number number" href={address("switch", String(one.generation))} aria-label={`Generation ${one.generation}`}>
          {one.generation}
        </a>
        <div class="grow">
          <p>
            <b>{one.message || "no description"}</b> {isActive && <span class="flag flag-active">active</span>}
          </p>
          <p class="muted">
            {one.author && <>{one.author.replace(/ <.*/, "")}, </>}
            {one.time !== undefined && <At ms={one.time * 1000} />}
            {one.counts && `, ${count(one.counts.cobs, "object")} on ${count(one.counts.hosts, "host")}`}
          </p>
          {!outcome && <p class="muted">{outcomesKnown ? "no switch to it is known" : "…"}</p>}
          {outcome && (
            <p class="with-mark">
              <Mark cls={resultClass(outcome)} />
              <a href={address("switch", String(one.generation))}>
                {resultWords(outcome)}
                {outcome.ended_ns ? ` in ${span((outcome.ended_ns - outcome.began_ns) / 1e6)}` : ""}
              </a>
            </p>
          )}
        </div>
        <span class="buttons">
          {!isActive && (
            <>
              <button type="button" class="small" aria-expanded={open} onClick={toggle}>
                Changes
              </button>
              <button
                type="button"
                class="small"
                onClick={() => propose(back ? { order: "rollback", to: one.generation } : { order: "switch", to: one.generation })}
              >
                {back ? "Roll back…" : "Switch…"}
              </button>
            </>
          )}
        </span>
      </div>
      {open && <PlanOf number={one.generation} />}
    </li>
  );
}

function PlanOf({ number }: { number: number }) {
  const asked = useAsk<Plan | Plan[]>("plan", { generation: String(number) });
  const plan = plansOf(asked.value?.answer)[0];
  return (
    <div class={asked.loading ? "changes reserve" : "changes"}>
      {asked.loading && <Loading />}
      <Trouble error={asked.error} hints={asked.hints} again={asked.again} />
      {plan && (
        <>
          <h3>
            From generation {plan.changes.from} to {plan.changes.to}
          </h3>
          <ChangeList changes={plan.changes} />
          <Interruptions plan={plan} />
          {plan.changes.from < plan.changes.to && <WhatIf key={`${plan.changes.from} ${plan.changes.to}`} from={plan.changes.from} to={plan.changes.to} />}
        </>
      )}
    </div>
  );
}

const MOST = 50;

export function ChangeList({ changes }: { changes: Changes }) {
  const { added, removed, changed, hosts_added, hosts_removed, hosts_moved, kinds_changed } = changes;
  const moved = Object.keys(hosts_moved ?? {});
  const all = Object.entries(changed);
  const own = all.filter(([, change]) => changeWords(change) !== "");
  const sum = Object.keys(added).length + Object.keys(removed).length + own.length;
  return (
    <>
      {sum === 0 && <Empty>No object changes.</Empty>}
      {hosts_added.length > 0 && <p>New hosts: {hosts_added.map((name) => <HostLink key={name} name={name} />)}</p>}
      {hosts_removed.length > 0 && <p>Removed hosts: {hosts_removed.map((name) => <HostLink key={name} name={name} />)}</p>}
      {moved.length > 0 && <p>Hosts with another address: {moved.map((name) => <HostLink key={name} name={name} />)}</p>}
      {kinds_changed.length > 0 && <p>Changed kinds: {kinds_changed.join(", ")}</p>}
      <ul class="change-list">
        {Object.keys(added)
          .slice(0, MOST)
          .map((id) => (
            <li key={id}>
              <span class="sign plus">+</span> <CobLink id={id} />
            </li>
          ))}
        {Object.keys(removed)
          .slice(0, MOST)
          .map((id) => (
            <li key={id}>
              <span class="sign minus">−</span> <CobLink id={id} />
            </li>
          ))}
        {own.slice(0, MOST).map(([id, change]) => (
          <li key={id}>
            <span class="sign">~</span> <CobLink id={id} /> <span class="muted">{changeWords(change)}</span>
            <Contents change={change} />
          </li>
        ))}
      </ul>
      {sum > MOST && <p class="muted">{count(sum, "object")} in all</p>}
    </>
  );
}

function changeWords(change: ChangedCob): string {
  const words: string[] = [];
  if (change.content && change.content.length > 0) words.push("content");
  if (change.kind_changed) words.push("kind");
  if (change.preferred) words.push(`preferred state ${change.preferred.from} → ${change.preferred.to}`);
  if (words.length === 0 && change.outdated) words.push("outdated");
  return words.join(", ");
}

function Contents({ change }: { change: ChangedCob }) {
  const parts = change.content ?? [];
  if (parts.length === 0) return null;
  return (
    <details open={parts.length <= 2}>
      <summary>{count(parts.length, "difference")}</summary>
      {parts.slice(0, 20).map((part) => (
        <div key={part.path}>
          <code class="muted">{part.path}</code>
          <Hunks text={part.lines ?? [...asLines("-", part.from), ...asLines("+", part.to)].join("\n")} />
        </div>
      ))}
    </details>
  );
}

function asLines(sign: string, value: unknown): string[] {
  if (value === undefined || value === null) return [];
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.split("\n").map((line) => sign + line);
}

interface SwitchesProps {
  past: Outcome[];
  loading: boolean;
  error: string;
  hints: string[];
  again: () => void;
}

function Switches({ past, loading, error, hints, again }: SwitchesProps) {
  const list = [...past].sort((a, b) => b.began_ns - a.began_ns);
  return (
    <Section title="Past switches">
      {loading && <Loading />}
      <Trouble error={error} hints={hints} again={again} />
      {!loading && list.length === 0 && !error && <Empty>The histories contain no switch.</Empty>}
      {list.length > 0 && (
        <div class="scroll-x">
          <table class="list">
            <Columns of={["Switch", "Result", "Began", ["Took", "right"], "By"]} />
            <tbody>
              {list.slice(0, 50).map((one) => {
                const from = [...new Set(Object.values(one.hosts).map((host) => host.from ?? "none"))];
                return (
                  <tr key={`${one.to}-${one.began_ns}`}>
                    <th scope="row" class="nowrap">
                      <a href={address("switch", String(one.to))}>
                        {from.join(", ")} → {one.to}
                      </a>
                    </th>
                    <td>
                      <span class={`class-word c-${CLASSES[resultClass(one)]}`}>
                        <Mark cls={resultClass(one)} /> {resultWords(one)}
                      </span>
                    </td>
                    <td class="nowrap">
                      <At ms={one.began_ns / 1e6} />
                    </td>
                    <td class="right number nowrap">{one.ended_ns ? span((one.ended_ns - one.began_ns) / 1e6) : "–"}</td>
                    <td>
                      <Text>{one.by || "not known"}</Text>
                    </td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </Section>
  );
}
