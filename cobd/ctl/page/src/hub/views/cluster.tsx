// One cluster: its state, its machines, its jobs, and all operations with their plans.
import { useState } from "preact/hooks";
import { Empty, Section } from "../../marks";
import { address, go } from "../../route";
import { count } from "../../words";
import { send } from "../api";
import { changed, useHub } from "../load";
import { Answered, Dialog, Failed, failOf, Field, JobLink, Moment, Plan, StateWord, Until } from "../parts";
import { list, lossOf, operationWords, secondsOf } from "../texts";
import type { Cluster, Job, Machine, Operation, Preview } from "../wire";
import { JobTable } from "./jobs";

type Wish = Operation["operation"] | "lease";

export function ClusterView({ name }: { name: string }) {
  const cluster = useHub<Cluster>(["clusters", name], {}, 2000);
  const jobs = useHub<Job[]>(["jobs"], { cluster: name }, 2000);
  const [wish, setWish] = useState<{ what: Wish; node?: string } | null>(null);
  return (
    <div class="view">
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
          <thead>
            <tr>
              <th scope="col">Node</th>
              <th scope="col">State</th>
              <th scope="col">Provider</th>
              <th scope="col">Address</th>
              <th scope="col">
                <span class="hidden">Operation</span>
              </th>
            </tr>
          </thead>
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

const EXPLAIN: Record<Wish, string> = {
  create: "",
  resize: "More or fewer nodes. Existing nodes keep their services.",
  services: "Services with changes restart; others stay as they are.",
  configure: "The configuration is replaced. Services whose configuration differs restart.",
  start: "Stopped services start.",
  stop: "The services, and the services that need them, stop until somebody starts them.",
  restart: "The services, and the services that need them, are down meanwhile.",
  sync: "The newest version of the template and its services.",
  rollback: "The state before the last operation that changed the cluster.",
  replace: "A new machine takes the place of this one. What only this machine stores is lost.",
  delete: "All services stop and all machines are deleted.",
  lease: "When the lease ends, the cluster is deleted.",
};

const BUTTON: Record<Wish, string> = {
  create: "",
  resize: "Resize",
  services: "Change services",
  configure: "Configure",
  start: "Start",
  stop: "Stop",
  restart: "Restart",
  sync: "Upgrade",
  rollback: "Roll back",
  replace: "Replace",
  delete: "Delete",
  lease: "Set the lease",
};

/** The plan of an operation for which the hub can make none. */
const NO_PLAN: Preview = { nodes: [], create: [], delete: [], tasks: [], stages: [] };

const names = (text: string) => text.split(/[\s,]+/).filter(Boolean);

/** An operation: its values first, then its plan, then the order. */
function Order({ cluster, what, node, close }: { cluster: Cluster; what: Wish; node: string; close: () => void }) {
  const [nodes, setNodes] = useState(String(cluster.wanted.nodes));
  const [some, setSome] = useState("");
  const [gone, setGone] = useState("");
  const [config, setConfig] = useState(() => JSON.stringify(cluster.wanted.config ?? {}, null, 2));
  const [lease, setLease] = useState("7d");
  const [plan, setPlan] = useState<{ of: string; plan: Preview } | null>(null);
  const [note, setNote] = useState("");
  const seconds = secondsOf(lease);
  const parsed = objectOf(config);
  const operation = operationOf();

  function operationOf(): Operation | null {
    switch (what) {
      case "resize":
        return /^[1-9]\d{0,4}$/.test(nodes) ? { operation: "resize", nodes: Number(nodes) } : null;
      case "services":
        return names(some).length + names(gone).length > 0 ? { operation: "services", add: names(some), remove: names(gone) } : null;
      case "configure":
        return parsed ? { operation: "configure", config: parsed } : null;
      case "start":
      case "stop":
      case "restart":
        return { operation: what, services: names(some) };
      case "replace":
        return { operation: "replace", node };
      case "sync":
      case "rollback":
      case "delete":
        return { operation: what };
      default:
        return null;
    }
  }

  // A plan counts for the values that it was made for.
  const values = JSON.stringify(operation);
  const shown = plan !== null && plan.of === values ? plan.plan : null;
  const order = async () => {
    if (what === "lease") {
      await send("PUT", ["clusters", cluster.name, "lease"], { lease_s: seconds });
      changed();
      return undefined;
    }
    if (!shown) {
      const made = await send<Preview>("POST", ["clusters", cluster.name, "preview"], operation).catch((error: unknown) => {
        // A cluster whose template is broken can be deleted, too.
        if (what !== "delete") throw error;
        setNote(failOf(error).error);
        return NO_PLAN;
      });
      setPlan({ of: values, plan: made });
      return false;
    }
    // The hub refuses the order if the cluster has changed since the plan.
    const base: Record<string, string> = shown.base ? { base: shown.base } : {};
    const { job } = await send<{ job: number }>("POST", ["clusters", cluster.name, "operations"], operation, base).catch((error: unknown) => {
      setPlan(null);
      throw error;
    });
    changed();
    go(address("job", String(job)));
    return undefined;
  };
  const title = what === "lease" ? `Lease of ${cluster.name}` : `${cluster.name}: ${operation ? operationWords(operation) : BUTTON[what].toLowerCase()}`;
  const loss = shown && operation ? lossOf(operation, cluster.wanted.nodes, shown) : "";
  const confirm = loss ? { typed: cluster.name } : {};
  return (
    <Dialog title={title} button={what === "lease" || shown ? BUTTON[what] : "Show the plan"} ready={what === "lease" ? seconds !== null : operation !== null} {...confirm} close={close} submit={order}>
      <p>{EXPLAIN[what]}</p>
      {what === "resize" && (
        <Field label="Nodes" hint={`now ${count(cluster.wanted.nodes, "node")}`}>
          <input inputMode="numeric" value={nodes} onInput={(event) => setNodes(event.currentTarget.value)} />
        </Field>
      )}
      {what === "services" && (
        <>
          <Field label="Add services" hint="names, separated by spaces">
            <input value={some} onInput={(event) => setSome(event.currentTarget.value)} autocapitalize="none" spellcheck={false} />
          </Field>
          <Field label="Remove services">
            <input value={gone} onInput={(event) => setGone(event.currentTarget.value)} autocapitalize="none" spellcheck={false} />
          </Field>
        </>
      )}
      {(what === "start" || what === "stop" || what === "restart") && (
        <Field label="Services" hint="names, separated by spaces; empty: all">
          <input value={some} onInput={(event) => setSome(event.currentTarget.value)} autocapitalize="none" spellcheck={false} />
        </Field>
      )}
      {what === "configure" && (
        <Field label="Configuration, as JSON" hint={parsed ? "" : "this is no object in JSON yet"}>
          <textarea rows={8} value={config} onInput={(event) => setConfig(event.currentTarget.value)} spellcheck={false} />
        </Field>
      )}
      {what === "lease" && (
        <Field label="From now" hint="90s, 30min, 36h, 7d, 2w">
          <input value={lease} onInput={(event) => setLease(event.currentTarget.value)} />
        </Field>
      )}
      {shown && note && <p class="warning">There is no plan: {note}</p>}
      {shown && !note && <Plan plan={shown} />}
      {loss && <p class="warning">{loss}</p>}
    </Dialog>
  );
}

export function objectOf(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
