// Jobs, and one job with its log.
import { useEffect, useRef, useState } from "preact/hooks";
import { Empty, Section } from "../../marks";

import { span } from "../../words";
import { get, Refused, send } from "../api";
import { changed, useHub } from "../load";
import { Answered, ClusterLink, Dialog, Failed, failOf, JobLink, Moment, StateWord, type Fail } from "../parts";
import { isOver, operationWords } from "../texts";
import type { Job, LogPart } from "../wire";

/** The most characters of a log that the page keeps. */
const KEPT = 400_000;

export function JobTable({ jobs, withCluster }: { jobs: Job[]; withCluster?: boolean }) {
  if (jobs.length === 0) return <Empty>No jobs.</Empty>;
  return (
    <table class="list">
      <thead>
        <tr>
          <th scope="col">Job</th>
          <th scope="col">State</th>
          {withCluster && <th scope="col">Cluster</th>}
          <th scope="col">Operation</th>
          <th scope="col">User</th>
          <th scope="col">Ordered</th>
          <th scope="col">Time</th>
        </tr>
      </thead>
      <tbody>
        {jobs.map((job) => (
          <tr key={job.id}>
            <th scope="row">
              <JobLink id={job.id} />
            </th>
            <td>
              <StateWord state={job.state} />
              {job.reason && <span class="last-line">{job.reason}</span>}
            </td>
            {withCluster && (
              <td>
                <ClusterLink name={job.cluster} />
              </td>
            )}
            <td>{operationWords(job.operation)}</td>
            <td>{job.user}</td>
            <td>
              <Moment ms={job.submitted_ms} />
            </td>
            <td class="number">{job.started_ms === undefined ? "–" : span((job.ended_ms ?? Date.now()) - job.started_ms)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function JobsView() {
  const [open, setOpen] = useState(false);
  const jobs = useHub<Job[]>(["jobs"], open ? { open: "true" } : {}, 2000);
  return (
    <div class="view">
      <div class="fields">
        <h1>Jobs</h1>
        <label class="with-mark">
          <input type="checkbox" checked={open} onChange={(event) => setOpen(event.currentTarget.checked)} /> only jobs that have not ended
        </label>
      </div>
      <section class="panel scroll-x" aria-label="Jobs" tabIndex={0}>
        <Answered of={jobs}>{(all) => <JobTable jobs={all} withCluster />}</Answered>
      </section>
    </div>
  );
}

export function JobView({ id }: { id: string }) {
  const job = useHub<Job>(["jobs", id], {}, 1000);
  const [asks, setAsks] = useState(false);
  return (
    <div class="view">
      <Answered of={job}>
        {(found) => (
          <>
            <header class="panel head">
              <div class="fields">
                <h1>
                  Job {found.id}: {operationWords(found.operation)}
                </h1>
                <StateWord state={found.state} />
                <span>
                  of <ClusterLink name={found.cluster} />
                </span>
                <span class="grow" />
                {!isOver(found.state) && found.state !== "canceling" && (
                  <button type="button" class="danger" onClick={() => setAsks(true)}>
                    Cancel
                  </button>
                )}
              </div>
              <Progress job={found} />
              {found.reason && <Failed error={found.reason} hint={found.hint ?? ""} />}
              <p class="muted">
                {found.user} gave the order at <Moment ms={found.submitted_ms} />
                {found.started_ms !== undefined && <> · {isOver(found.state) ? "it took" : "it runs for"} {span((found.ended_ms ?? Date.now()) - found.started_ms)}</>}
              </p>
            </header>
            <Log id={found.id} over={isOver(found.state)} />
            {asks && (
              <Dialog title={`Cancel job ${found.id}`} button="Cancel the job" close={() => setAsks(false)} submit={() => send<void>("POST", ["jobs", String(found.id), "cancel"], {}).then(changed)}>
                <p>The job stops, and takes back what it has begun.</p>
              </Dialog>
            )}
          </>
        )}
      </Answered>
    </div>
  );
}

function Progress({ job }: { job: Job }) {
  if (job.steps === 0) return null;
  return (
    <p class="job-progress">
      <progress max={job.steps} value={job.steps_done} aria-label="Steps that are done" />
      <span>
        {isOver(job.state) ? `${job.steps_done} of ${job.steps} steps are done` : `step ${Math.min(job.steps_done + 1, job.steps)} of ${job.steps}${job.step ? `: ${job.step}` : ""}`}
      </span>
    </p>
  );
}

/** The log, followed until the job has ended. */
function Log({ id, over }: { id: number; over: boolean }) {
  const [text, setText] = useState("");
  const [fail, setFail] = useState<Fail | null>(null);
  const [round, setRound] = useState(0);
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    const abort = new AbortController();
    const run = async () => {
      let from = 0;
      setText("");
      for (;;) {
        const part = await get<LogPart>(["jobs", String(id), "log"], { from: String(from) }, abort.signal).catch((error: unknown) => {
          const passes = error instanceof Refused && (error.status === 0 || error.status >= 500);
          if (!passes || abort.signal.aborted) throw error;
          setFail(failOf(error));
          return null;
        });
        if (part === null) {
          await new Promise((resolve) => setTimeout(resolve, 2000));
          if (abort.signal.aborted) return;
          continue;
        }
        setFail(null);
        from = part.next;
        if (part.text) setText((before) => (before + part.text).slice(-KEPT));
        if (part.complete) return;
        if (!part.text) await new Promise((resolve) => setTimeout(resolve, 500));
        if (abort.signal.aborted) return;
      }
    };
    run().then(
      () => setFail(null),
      (error: unknown) => abort.signal.aborted || setFail(failOf(error)),
    );
    return () => abort.abort();
  }, [id, round]);
  useEffect(() => {
    const pre = box.current;
    // A reader who has scrolled up stays there.
    if (pre && pre.scrollHeight - pre.scrollTop - pre.clientHeight < 200) pre.scrollTop = pre.scrollHeight;
  }, [text]);
  return (
    <Section title="Log">
      {fail && <Failed {...fail} again={() => setRound((before) => before + 1)} />}
      <pre ref={box} class="output log" tabIndex={0} aria-label="Log of the job">
        {text || (fail ? "" : over ? "The job wrote nothing." : "The job has written nothing yet.")}
      </pre>
    </Section>
  );
}

