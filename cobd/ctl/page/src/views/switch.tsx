// A switch: the chart of a past or running switch, the forecast of a switch that was not made.
import { useEffect, useMemo, useState } from "preact/hooks";
import { Interruptions, plansOf } from "../dialog";
import { Gantt } from "../draw/gantt";
import { chartOfPlan, chartOfReplay, withForecast } from "../gantt";
import { useAsk } from "../load";
import { At, Columns, Empty, HostLink, Loading, Mark, Section, Text, Trouble } from "../parts";
import { forecastOf, remember } from "../plans";
import { propose } from "../proposal";
import { address } from "../route";
import { cluster, counts, hosts, now, tick } from "../store";
import { CLASSES, FAILED, MOVING, STOPPED, UNKNOWN, WAITING } from "../table";
import type { Ended, Outcome, Plan, ReplayEntry } from "../wire";
import { count, span } from "../words";
import { useCourse } from "./course";
import { WhatIf } from "./faults";

const RESULT_CLASS: Record<Ended, number> = {
  converged: 0,
  "called-off": STOPPED,
  superseded: UNKNOWN,
  cancelled: STOPPED,
  "rolled-back": STOPPED,
  "under-way": MOVING,
  failed: FAILED,
};

/** The class for the end of a switch. */
export function resultClass({ ended }: { ended: Ended }): number {
  return RESULT_CLASS[ended] ?? UNKNOWN;
}

export function resultWords({ ended }: { ended: Ended }): string {
  return ended.replaceAll("-", " ");
}

export function SwitchView({ number }: { number: number }) {
  const state = cluster.value;
  const going = hosts.value.filter((host) => host.switching_to === number);
  const live = going.length > 0 || (state?.generation === number && (counts.value[MOVING]! > 0 || counts.value[WAITING]! > 0));
  const refresh = live ? tick.value : state?.generation;
  const { outcomes, replay, outcome, entries } = useCourse(number, refresh);
  const happened = entries.length > 0;
  const current = state?.generation === number || going.length > 0;
  const [mode, setMode] = useState<"" | "past" | "forecast">("");
  const shown = mode || (happened || replay.loading || current ? "past" : "forecast");
  const cls = outcome ? resultClass(outcome) : live ? MOVING : UNKNOWN;
  const back = state?.generation !== undefined && number < state.generation;
  return (
    <div class="view">
      <header class={`title soft-${CLASSES[cls]}`}>
        <Mark cls={cls} />
        <div class="grow">
          <h1>Switch to generation {number}</h1>
          <p>
            {going.length > 0
              ? `${count(going.length, "host")} of ${hosts.value.length} switch now`
              : outcome
                ? resultWords(outcome)
                : outcomes.loading
                  ? "Asking…"
                  : current
                    ? "begins"
                    : "not made yet"}
            {state?.generation === number && " · active generation"}
          </p>
        </div>
        <span class="buttons">
          <a class="button" href={address("generations")}>
            Generations
          </a>
          {going.length > 0 && (
            <button type="button" onClick={() => propose({ order: "cancel", generation: number })}>
              Cancel…
            </button>
          )}
          {state?.generation !== number && going.length === 0 && (
            <button
              type="button"
              class={back ? "" : "primary"}
              onClick={() => propose(back ? { order: "rollback", to: number } : { order: "switch", to: number })}
            >
              {back ? "Roll back…" : "Switch…"}
            </button>
          )}
        </span>
      </header>
      <Trouble error={outcomes.error} hints={outcomes.hints} again={outcomes.again} />
      {outcome ? <Facts outcome={outcome} /> : outcomes.loading && <div class="fact-row" aria-hidden="true" />}
      {!current && (happened || replay.loading) && (
        <div class="chips" role="group" aria-label="Shown chart">
          <button type="button" class="chip" aria-pressed={shown === "past"} onClick={() => setMode("past")}>
            As it was
          </button>
          <button type="button" class="chip" aria-pressed={shown === "forecast"} onClick={() => setMode("forecast")}>
            Forecast from now
          </button>
        </div>
      )}
      {shown === "past" ? <Past number={number} entries={entries} loading={replay.loading} error={replay.error} live={live} began={outcome ? outcome.began_ns / 1e6 : now.value} /> : <Forecast number={number} />}
      {outcome && <PerHost outcome={outcome} />}
    </div>
  );
}

function Facts({ outcome }: { outcome: Outcome }) {
  const began = outcome.began_ns / 1e6;
  const ended = outcome.ended_ns ? outcome.ended_ns / 1e6 : null;
  const list = Object.values(outcome.hosts);
  const cobs = list.flatMap((host) => Object.values(host.cobs ?? {}));
  const failures = cobs.reduce((sum, cob) => sum + cob.failures, 0);
  const from = [...new Set(list.map((host) => host.from ?? "none"))].join(", ");
  return (
    <dl class="fact-row">
      <div>
        <dt>Began</dt>
        <dd>
          <At ms={began} />
        </dd>
      </div>
      <div>
        <dt>{ended === null ? "Since then" : "Took"}</dt>
        <dd class="number">{span((ended ?? now.value) - began)}</dd>
      </div>
      <div>
        <dt>By</dt>
        <dd>{outcome.by || "not known"}</dd>
      </div>
      <div>
        <dt>From generation</dt>
        <dd class="number">{from}</dd>
      </div>
      <div>
        <dt>Transitions</dt>
        <dd class="number">{cobs.reduce((sum, cob) => sum + cob.moves, 0).toLocaleString("en")}</dd>
      </div>
      <div>
        <dt>Failed attempts</dt>
        <dd class={`number ${failures > 0 ? "c-failed" : ""}`}>{failures.toLocaleString("en")}</dd>
      </div>
    </dl>
  );
}

interface PastProps {
  number: number;
  entries: ReplayEntry[];
  loading: boolean;
  error: string;
  live: boolean;
  began: number;
}

function Past({ number, entries, loading, error, live, began }: PastProps) {
  const first = entries[0];
  const plan = forecastOf(number, began);
  const until = live && first ? now.value - (first.ts_ns - first.offset_ns) / 1e6 : 0;
  const chart = useMemo(() => {
    const real = chartOfReplay(entries, until);
    return plan && real.rows.length > 0 ? withForecast(real, plan) : real;
  }, [entries, until, plan]);
  const left = plan ? began + plan.forecast.p50_us / 1000 - now.value : 0;
  return (
    <Section title={live ? "Course so far" : "As it was"} class={loading ? "reserve" : ""} more={<span class="muted">{count(chart.rows.length, "object")} with transitions</span>}>
      {live && plan && (
        <p role="status">
          {left > 0 ? (
            <>
              By the forecast it ends in about <b class="number">{span(left)}</b>.
            </>
          ) : (
            <>
              By the forecast it should have ended <b class="number">{span(-left)}</b> ago.
            </>
          )}
        </p>
      )}
      {loading && <Loading />}
      {!loading && chart.rows.length === 0 ? (
        <Empty>{live ? "The first transitions follow." : error || "The histories contain no transition of this switch."}</Empty>
      ) : (
        chart.rows.length > 0 && <Gantt chart={chart} forecast={false} number={number} />
      )}
    </Section>
  );
}

function Forecast({ number }: { number: number }) {
  const asked = useAsk<Plan | Plan[]>("plan", { generation: String(number) });
  const plan = plansOf(asked.value?.answer)[0];
  const chart = useMemo(() => (plan ? chartOfPlan(plan) : null), [plan]);
  useEffect(() => {
    if (plan) remember(plan, now.value);
  }, [plan]);
  return (
    <>
      <Section title="Forecast" class={asked.loading ? "reserve" : ""} more={plan && <span class="muted">{count(plan.transitions.length, "transition")}</span>}>
        {asked.loading && <Loading />}
        <Trouble error={asked.error} hints={asked.hints} again={asked.again} />
        {asked.value?.problems.map((problem) => (
          <p key={problem} class="muted">
            <Text>{problem}</Text>
          </p>
        ))}
        {plan && <Interruptions plan={plan} most={20} />}
        {plan && plan.changes.from < plan.changes.to && <WhatIf key={`${plan.changes.from} ${plan.changes.to}`} from={plan.changes.from} to={plan.changes.to} />}
      </Section>
      {chart && chart.rows.length > 0 && (
        <Section title="Course by the forecast">
          <Gantt chart={chart} forecast />
        </Section>
      )}
    </>
  );
}

function PerHost({ outcome }: { outcome: Outcome }) {
  const list = Object.entries(outcome.hosts);
  const [most, setMost] = useState(30);
  const bad = (ended: Ended) => (ended === "converged" ? 1 : 0);
  list.sort((a, b) => bad(a[1].ended) - bad(b[1].ended));
  return (
    <Section title="Hosts of the switch">
      {outcome.silent && outcome.silent.length > 0 && (
        <p class="warning">
          <Mark cls={UNKNOWN} /> No report from <Text>{outcome.silent.join(", ")}</Text>
        </p>
      )}
      <div class="scroll-x">
        <table class="list">
          <Columns of={["Host", "Result", ["From", "right"], ["Activated after", "right"], ["Ended after", "right"], ["Failed attempts", "right"]]} />
          <tbody>
            {list.slice(0, most).map(([name, host]) => {
              const failures = Object.values(host.cobs ?? {}).reduce((sum, cob) => sum + cob.failures, 0);
              const after = (ns: number | null | undefined) => (ns ? span((ns - outcome.began_ns) / 1e6) : "–");
              return (
                <tr key={name}>
                  <th scope="row">
                    <HostLink name={name} />
                  </th>
                  <td>
                    <span class="with-mark">
                      <Mark cls={resultClass(host)} />
                      <span>{resultWords(host)}</span>
                    </span>
                  </td>
                  <td class="right number">{host.from ?? "none"}</td>
                  <td class="right number">{after(host.activated_ns)}</td>
                  <td class="right number">{after(host.ended_ns)}</td>
                  <td class={`right number ${failures > 0 ? "c-failed" : ""}`}>{failures}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {list.length > most && (
        <button type="button" class="small" onClick={() => setMost(list.length)}>
          All {count(list.length, "host")}
        </button>
      )}
    </Section>
  );
}
