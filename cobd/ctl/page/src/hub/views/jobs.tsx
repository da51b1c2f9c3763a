// Jobs: filters and pages in the address, priorities, and the reason of each wait.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Columns, Empty } from "../../marks";
import { address, here, setParams } from "../../route";
import { span } from "../../words";
import { me, ofTenant, send, tenant } from "../api";
import { changed, useHub } from "../load";
import { Answered, ClusterLink, Dialog, Field, JobLink, Moment, StateWord } from "../parts";
import { bestPriority, filterOf, isPending, JOB_STATES, jobParts, numberOf, PAGE, paramsOf, queryOf, SINCE, type JobFilter } from "../queue";
import { operationWords } from "../texts";
import { OPERATIONS, type Directory, type Job } from "../wire";
import { QueueNotice } from "./queue";

/** The reason of a wait or failure; the jobs that it names are links. */
export function Reason({ text }: { text: string }) {
  return <span class="last-line reason">{jobParts(text).map((part, at) => (typeof part === "number" ? <JobLink key={at} id={part} /> : part))}</span>;
}

export function JobTable({ jobs, withCluster }: { jobs: Job[]; withCluster?: boolean }) {
  const [asks, setAsks] = useState<Job | null>(null);
  if (jobs.length === 0) return <Empty>No jobs.</Empty>;
  return (
    <>
      <table class="list jobs">
        <Columns of={["Job", "State", withCluster && "Cluster", "Operation", "Priority", "User", ["Ordered", "wide"], ["Time", "wide"]]} />
        <tbody>
          {jobs.map((job) => (
            <tr key={job.id}>
              <th scope="row" class="nowrap">
                <JobLink id={job.id} />
              </th>
              <td>
                <StateWord state={job.state} />
                {job.reason && <Reason text={job.reason} />}
              </td>
              {withCluster && (
                <td>
                  <ClusterLink name={job.cluster} of={job.tenant} />
                </td>
              )}
              <td>{operationWords(job.operation)}</td>
              <td class="number nowrap">
                {isPending(job.state) ? (
                  <button type="button" class="small" aria-label={`Priority ${job.priority} of job ${job.id}: change`} onClick={() => setAsks(job)}>
                    {job.priority}
                  </button>
                ) : (
                  <span class="muted">{job.priority}</span>
                )}
              </td>
              <td>{job.user}</td>
              <td class="wide">
                <Moment ms={job.submitted_ms} />
              </td>
              <td class="number nowrap wide">{job.started_ms === undefined ? "–" : span((job.ended_ms ?? Date.now()) - job.started_ms)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {asks && <PriorityDialog job={asks} close={() => setAsks(null)} />}
    </>
  );
}

export function PriorityDialog({ job, close }: { job: Job; close: () => void }) {
  const [text, setText] = useState(String(job.priority));
  const priority = numberOf(text, -20, 19);
  const best = bestPriority(me.value?.standing ?? "user");
  const submit = () => send<Job>("PUT", ["jobs", String(job.id), "priority"], { priority }).then(changed);
  return (
    <Dialog title={`Priority of job ${job.id}`} button="Set the priority" ready={priority !== null} close={close} submit={submit}>
      <p>The job with the smaller number starts first; -20 is the most important, 19 the least. Jobs of one cluster keep their order.</p>
      <Field label="Priority" hint={priority === null ? "write a whole number from -20 to 19" : `you may give ${best} to 19`}>
        <input value={text} onInput={(event) => setText(event.currentTarget.value)} autocomplete="off" spellcheck={false} />
      </Field>
    </Dialog>
  );
}

export function JobsView() {
  const { params } = here.value;
  const filter = filterOf(params);
  const now = useMemo(() => Date.now(), [filter.since]);
  const jobs = useHub<Job[]>(["jobs"], queryOf(filter, now), 2000);
  const box = useRef<HTMLElement>(null);
  const page = filter.pages.join();
  const shown = useRef(page);
  useEffect(() => {
    // The keyboard and the reader begin at the top of another page.
    if (shown.current !== page) {
      box.current?.focus();
      box.current?.scrollIntoView({ block: "start" });
    }
    shown.current = page;
  }, [page]);
  const to = (other: JobFilter) => ({ ...paramsOf(other), ...ofTenant(tenant.value) });
  const change = (part: Partial<JobFilter>) => setParams(new URLSearchParams(to({ ...filter, ...part, pages: [] })));
  const isFiltered = Object.keys(paramsOf({ ...filter, pages: [] })).length > 0;
  return (
    <div class="view">
      <h1>Jobs</h1>
      <QueueNotice />
      <Filters filter={filter} change={change} reset={isFiltered ? () => change({ state: "", cluster: "", user: "", operation: "", since: "" }) : null} />
      <section ref={box} class="panel scroll-x" aria-label="Jobs" tabIndex={0}>
        <Answered of={jobs}>
          {(all) => (
            <>
              {all.length === 0 && (isFiltered || page) ? <Empty>{page ? "There are no older jobs." : "No job matches the filters."}</Empty> : <JobTable jobs={all.slice(0, PAGE)} withCluster />}
              <nav class="buttons more" aria-label="Pages of jobs">
                {filter.pages.length > 1 && (
                  <a class="button small" href={address("jobs", "", to({ ...filter, pages: [] }))}>
                    Newest jobs
                  </a>
                )}
                {filter.pages.length > 0 && (
                  <a class="button small" href={address("jobs", "", to({ ...filter, pages: filter.pages.slice(0, -1) }))}>
                    Newer jobs
                  </a>
                )}
                {all.length > PAGE && (
                  <a class="button small" href={address("jobs", "", to({ ...filter, pages: [...filter.pages, all[PAGE - 1]!.id] }))}>
                    Older jobs
                  </a>
                )}
              </nav>
            </>
          )}
        </Answered>
      </section>
    </div>
  );
}

function Filters({ filter, change, reset }: { filter: JobFilter; change: (part: Partial<JobFilter>) => void; reset: (() => void) | null }) {
  const directory = useHub<Directory>(["directory"], {}, 30_000);
  const users = Object.entries(directory.value?.tenants ?? {})
    .filter(([name]) => !tenant.value || name === tenant.value)
    .flatMap(([name, of]) => Object.keys(of.users).map((user) => `${name}/${user}`));
  return (
    <div class="fields job-filters" role="search" aria-label="Filters of jobs">
      <label>
        <span class="field-label">State</span>
        <select value={filter.state} onChange={(event) => change({ state: event.currentTarget.value as JobFilter["state"] })}>
          <option value="">any</option>
          <option value="open">not ended</option>
          {JOB_STATES.map((state) => (
            <option key={state} value={state}>
              {state}
            </option>
          ))}
        </select>
      </label>
      <Whole label="Cluster" hint="whole name" value={filter.cluster} set={(cluster) => change({ cluster })} />
      <Whole label="User" hint="TENANT/USER" value={filter.user} set={(user) => change({ user })} choices={[...users, ...(directory.value?.super_administrators ?? [])]} />
      <label>
        <span class="field-label">Operation</span>
        <select value={filter.operation} onChange={(event) => change({ operation: event.currentTarget.value as JobFilter["operation"] })}>
          <option value="">any</option>
          {OPERATIONS.map((operation) => (
            <option key={operation} value={operation}>
              {operation}
            </option>
          ))}
        </select>
      </label>
      <label>
        <span class="field-label">Ordered in</span>
        <select value={filter.since} onChange={(event) => change({ since: event.currentTarget.value as JobFilter["since"] })}>
          <option value="">all time</option>
          {Object.entries(SINCE).map(([value, [words]]) => (
            <option key={value} value={value}>
              {words}
            </option>
          ))}
        </select>
      </label>
      {reset && (
        <button type="button" onClick={reset}>
          Remove the filters
        </button>
      )}
    </div>
  );
}

/** A field for a whole name: it counts after Enter or when the focus leaves, because the hub compares whole names. */
function Whole({ label, hint, value, set, choices = [] }: { label: string; hint: string; value: string; set: (value: string) => void; choices?: string[] }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const id = `choices-${label}`;
  const input = (now: string) => {
    setText(now);
    if (now === "" || choices.includes(now)) set(now);
  };
  return (
    <label>
      <span class="field-label">{label}</span>
      <input
        type="search"
        placeholder={hint}
        value={text}
        list={choices.length > 0 ? id : undefined}
        onInput={(event) => input(event.currentTarget.value)}
        onChange={(event) => set(event.currentTarget.value.trim())}
        autocapitalize="none"
        autocomplete="off"
        spellcheck={false}
      />
      {choices.length > 0 && (
        <datalist id={id}>
          {choices.map((choice) => (
            <option key={choice} value={choice} />
          ))}
        </datalist>
      )}
    </label>
  );
}
