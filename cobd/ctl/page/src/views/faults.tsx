// "What if something fails?": the faults of the switch to a generation, tried by simulation on the server.
import { useEffect, useRef, useState } from "preact/hooks";
import { request } from "../api";
import { eachLine } from "../lines";
import { Mark, Text, Trouble } from "../parts";
import { Refusal } from "../refusal";
import { CLASSES, FAILED, SETTLED, STOPPED, WAITING } from "../table";
import type { FaultGroup, FaultReport, FaultTold } from "../wire";
import { count } from "../words";

/** The time of a first trial, and of a longer one, in seconds. */
const FIRST_S = 30;
const LONGER_S = 300;

const END_CLASS: Record<FaultGroup["end"], number> = {
  converges: SETTLED,
  "rolls-back": STOPPED,
  "needs-person": FAILED,
  crowds: WAITING,
  stuck: FAILED,
  "breaks-rule": FAILED,
};

type Trial =
  | { as: "none" }
  | { as: "runs"; words: string; share: number }
  | { as: "ended"; report: FaultReport }
  | { as: "failed"; error: string; hints: string[] };

export function WhatIf({ from, to }: { from: number; to: number }) {
  const [trial, setTrial] = useState<Trial>({ as: "none" });
  const running = useRef<AbortController | null>(null);
  // The server ends the trial when the view is left.
  useEffect(() => () => running.current?.abort(), []);
  const start = async (seconds: number) => {
    running.current?.abort();
    const controller = new AbortController();
    running.current = controller;
    setTrial({ as: "runs", words: "Trying…", share: 0 });
    let last: Trial = { as: "failed", error: "the server ended the trial without a result", hints: [] };
    try {
      const query = new URLSearchParams({ from: String(from), to: String(to), seconds: String(seconds) });
      const response = await request(`/api/faults?${query}`, { signal: controller.signal });
      await eachLine(response, (line) => {
        const told = JSON.parse(line) as FaultTold;
        if (told.kind === "progress") {
          const words = `step ${told.step} of ${told.steps}: ${count(told.cases, "case")} in ${count(told.runs, "run")}`;
          setTrial({ as: "runs", words, share: told.steps > 0 ? told.step / told.steps : 0 });
        } else if (told.kind === "report") last = { as: "ended", report: told };
        else last = { as: "failed", error: [told.error, ...told.causes].join(": "), hints: told.hints };
      });
    } catch (error) {
      const hints = error instanceof Refusal && error.hint ? [error.hint] : [];
      last = { as: "failed", error: error instanceof Error ? error.message : String(error), hints };
    }
    if (!controller.signal.aborted) setTrial(last);
  };
  const cancel = () => {
    running.current?.abort();
    setTrial({ as: "none" });
  };
  return (
    <div class="what-if">
      <div class="buttons">
        {trial.as === "runs" ? (
          <button type="button" onClick={cancel}>
            Cancel
          </button>
        ) : (
          <button type="button" onClick={() => void start(FIRST_S)}>
            What if something fails?
          </button>
        )}
        <span class="muted" role="status">
          {trial.as === "none" && `Tries each fault of the switch by simulation, for up to ${FIRST_S} s; no host is asked.`}
          {trial.as === "runs" && trial.words}
        </span>
      </div>
      {trial.as === "runs" && <progress aria-label="Steps of the switch" value={trial.share} max={1} />}
      {trial.as === "failed" && <Trouble error={trial.error} hints={trial.hints} again={() => void start(FIRST_S)} />}
      {trial.as === "ended" && <Result report={trial.report} longer={() => void start(LONGER_S)} />}
    </div>
  );
}

function Result({ report, longer }: { report: FaultReport; longer: () => void }) {
  return (
    <section aria-label="What if something fails">
      <p class="with-mark" role="status">
        <Mark cls={report.is_well ? SETTLED : FAILED} />
        <b>{report.summary}</b>
      </p>
      {report.skipped && (
        <p class="with-mark">
          <Mark cls={WAITING} />
          <span>
            Truncated: {report.skipped}.{" "}
            <button type="button" class="small" onClick={longer}>
              Try for up to {LONGER_S / 60} min
            </button>
          </span>
        </p>
      )}
      {report.groups.map((group) => (
        <details key={group.end} class="fault-group" open>
          <summary>
            <span class={`class-word c-${CLASSES[END_CLASS[group.end]]}`}>
              <Mark cls={END_CLASS[group.end]} />
              {group.cases > 0 ? `${count(group.cases, "case")} ${group.words}` : "Without any fault"}
            </span>
          </summary>
          <ul>
            {group.findings.map((found) => (
              <li key={found.title}>
                <p>
                  <b>
                    <Text>{found.title}</Text>
                  </b>
                </p>
                {found.why.map((line) => (
                  <p key={line}>
                    <Text>{line}</Text>
                  </p>
                ))}
                {found.also.length > 0 && (
                  <details>
                    <summary>{count(found.also.length, "further fault")} for the same reasons</summary>
                    <ul>
                      {found.also.map((fault) => (
                        <li key={fault}>
                          <Text>{fault}</Text>
                        </li>
                      ))}
                    </ul>
                  </details>
                )}
                {found.again && (
                  <p class="muted">
                    Again: <code>{found.again}</code>
                  </p>
                )}
              </li>
            ))}
          </ul>
        </details>
      ))}
      {report.left_off > 0 && (
        <p class="muted">
          {count(report.left_off, "more finding")}: <code>{report.command}</code>
        </p>
      )}
    </section>
  );
}
