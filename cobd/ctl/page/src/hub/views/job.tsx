// One job with its log.
import { useEffect, useRef, useState } from "preact/hooks";
import { Section } from "../../marks";
import { address } from "../../route";
import { span } from "../../words";
import { get, ofTenant, Refused, send } from "../api";
import { changed, useHub } from "../load";
import { Answered, ClusterLink, Dialog, Failed, failOf, Moment, StateWord, type Fail } from "../parts";
import { isPending } from "../queue";
import { isOver, operationWords } from "../texts";
import type { Cluster, Job, LogPart } from "../wire";
import { PriorityDialog, Reason } from "./jobs";
import { Order } from "./order";
import { QueueNotice } from "./queue";

/** The most characters of a log that the page keeps. */
const KEPT = 400_000;

export function JobView({ id }: { id: string }) {
  const job = useHub<Job>(["jobs", id], {}, 1000);
  const [asks, setAsks] = useState<"cancel" | "priority" | null>(null);
  const close = () => setAsks(null);
  return (
    <div class="view">
      {job.value && isPending(job.value.state) && <QueueNotice />}
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
                  of <ClusterLink name={found.cluster} of={found.tenant} />
                </span>
                <span class="grow" />
                {isPending(found.state) && (
                  <button type="button" onClick={() => setAsks("priority")}>
                    Set the priority
                  </button>
                )}
                {(found.state === "failed" || found.state === "canceled") && <Again job={found} />}
                {!isOver(found.state) && found.state !== "canceling" && (
                  <button type="button" class="danger" onClick={() => setAsks("cancel")}>
                    Cancel
                  </button>
                )}
              </div>
              <Progress job={found} />
              {found.reason && (isOver(found.state) ? <Failed error={found.reason} hint={found.hint ?? ""} /> : <Reason text={found.reason} />)}
              <p class="muted">
                {found.user} gave the order at <Moment ms={found.submitted_ms} />
                {isPending(found.state) && <> · priority {found.priority}</>}
                {found.started_ms !== undefined && <> · {isOver(found.state) ? "it took" : "it runs for"} {span((found.ended_ms ?? Date.now()) - found.started_ms)}</>}
              </p>
            </header>
            <Log id={found.id} over={isOver(found.state)} />
            {asks === "priority" && <PriorityDialog job={found} close={close} />}
            {asks === "cancel" && (
              <Dialog title={`Cancel job ${found.id}`} button="Cancel the job" close={close} submit={() => send<void>("POST", ["jobs", String(found.id), "cancel"], {}).then(changed)}>
                <p>The job stops, and takes back what it has begun.</p>
              </Dialog>
            )}
          </>
        )}
      </Answered>
    </div>
  );
}

/** The same operation with the same values, as a new job: its plan comes first. */
function Again({ job }: { job: Job }) {
  const cluster = useHub<Cluster>(["clusters", job.cluster], { tenant: job.tenant }, 5000);
  const [asks, setAsks] = useState(false);
  const found = cluster.value;
  const what = job.operation.operation;
  if (!found) return null;
  if (what === "create") {
    // A creation that left nothing behind frees the name of the cluster.
    if (found.state === "terminated") {
      return (
        <a class="button" href={address("create", "", { from: job.cluster, ...ofTenant(job.tenant) })}>
          Try again
        </a>
      );
    }
    return found.state === "incomplete" ? <span class="muted">Delete the cluster before another attempt.</span> : null;
  }
  const isPossible = what === "delete" || found.state === "active" || found.state === "inconsistent";
  if (!isPossible) return null;
  return (
    <>
      <button type="button" onClick={() => setAsks(true)}>
        Try again
      </button>
      {asks && <Order cluster={found} what={what} node={job.operation.operation === "replace" ? job.operation.node : ""} again={job.operation} close={() => setAsks(false)} />}
    </>
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
