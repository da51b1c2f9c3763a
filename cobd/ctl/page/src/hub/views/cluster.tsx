// One cluster: its state, its machines, its jobs, and the buttons of all operations.
import { useState } from "preact/hooks";
import { Columns, Empty, Section } from "../../marks";
import { address } from "../../route";
import { useHub } from "../load";
import { Answered, Failed, JobLink, Moment, StateWord, Until } from "../parts";
import { list } from "../texts";
import type { Cluster, Job, Machine } from "../wire";
import { JobTable } from "./jobs";
import { Order, type Wish } from "./order";
import { QueueNotice } from "./queue";

export function ClusterView({ name }: { name: string }) {
  const cluster = useHub<Cluster>(["clusters", name], {}, 2000);
  const jobs = useHub<Job[]>(["jobs"], { cluster: name }, 2000);
  const [wish, setWish] = useState<{ what: Wish; node?: string } | null>(null);
  return (
    <div class="view">
      <QueueNotice />
      <Answered of={cluster}>
        {(found) => (
          <>
            <Title cluster={found} ask={(what) => setWish({ what })} />
            <div class="columns">
              <Machines machines={found.machines} replace={(node) => setWish({ what: "replace", node })} />
              <Facts cluster={found} />
            </div>
            <Section title="Jobs" class="scroll-x">
              <Answered of={jobs}>{(all) => <JobTable jobs={all} />}</Answered>
            </Section>
            {wish && <Order cluster={found} what={wish.what} node={wish.node ?? ""} close={() => setWish(null)} />}
          </>
        )}
      </Answered>
    </div>
  );
}

function Title({ cluster, ask }: { cluster: Cluster; ask: (what: Wish) => void }) {
  const button = (what: Wish, words: string) => (
    <button type="button" onClick={() => ask(what)}>
      {words}
    </button>
  );
  return (
    <header class="panel head">
      <div class="fields">
        <h1 class="id">{cluster.name}</h1>
        <StateWord state={cluster.state} />
        {cluster.job !== undefined && (
          <span>
            <JobLink id={cluster.job} /> works on it
          </span>
        )}
      </div>
      {cluster.state === "inconsistent" && <Failed error="An operation failed, and the state before was not reached again." hint="Read the log of the last job, correct the cause, and repeat the operation." />}
      {cluster.state === "incomplete" && <Failed error="A creation or deletion failed, and machines may be left." hint="Delete the cluster, or repeat the operation." />}
      <div class="buttons" role="group" aria-label="Operations">
        {button("resize", "Resize")}
        {button("services", "Services")}
        {button("configure", "Configure")}
        {button("start", "Start")}
        {button("stop", "Stop")}
        {button("restart", "Restart")}
        {button("sync", "Upgrade")}
        {button("rollback", "Roll back")}
        {button("lease", "Lease")}
        <button type="button" class="danger" onClick={() => ask("delete")}>
          Delete
        </button>
      </div>
    </header>
  );
}

function Facts({ cluster }: { cluster: Cluster }) {
  const { wanted } = cluster;
  const config = Object.keys(wanted.config ?? {}).length > 0;
  return (
    <Section title="Description">
      <dl class="pairs">
        <dt>Template</dt>
        <dd>
          <a href={address("entity", `templates/${wanted.template}`)}>{wanted.template}</a>
        </dd>
        <dt>Nodes</dt>
        <dd>{wanted.nodes}</dd>
        <dt>Services</dt>
        <dd>{wanted.services ? list(wanted.services, 20) : "those of the template"}</dd>
        <dt>Owner</dt>
        <dd>{cluster.owner}</dd>
        <dt>Created</dt>
        <dd>
          <Moment ms={cluster.created_ms} />
        </dd>
        <dt>Lease ends</dt>
        <dd>
          <Until ms={cluster.lease_ends_ms} />
        </dd>
        <dt>Generation</dt>
        <dd>{cluster.generation ?? "–"}</dd>
        <dt>Catalogue</dt>
        <dd class="id">{cluster.catalogue.slice(0, 12)}</dd>
      </dl>
      {config && (
        <>
          <h3>Configuration</h3>
          <pre class="output" tabIndex={0}>
            {JSON.stringify(wanted.config, null, 2)}
          </pre>
        </>
      )}
    </Section>
  );
}

function Machines({ machines, replace }: { machines: Machine[]; replace: (node: string) => void }) {
  return (
    <Section title="Machines" class="scroll-x">
      {machines.length === 0 ? (
        <Empty>No machines.</Empty>
      ) : (
        <table class="list">
          <Columns of={["Node", "State", "Provider", "Address", ["Operation", "hidden"]]} />
          <tbody>
            {machines.map((machine) => (
              <tr key={machine.host}>
                <th scope="row" class="id">
                  {machine.host}
                </th>
                <td>
                  <StateWord state={machine.state} />
                </td>
                <td>{machine.provider}</td>
                <td class="id">{machine.address ?? "–"}</td>
                <td class="right">
                  <button type="button" class="small" aria-label={`Replace ${machine.host}`} onClick={() => replace(machine.host)}>
                    Replace
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </Section>
  );
}
