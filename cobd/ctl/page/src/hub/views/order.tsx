// An operation on a cluster: its values, its plan, its order.
import { useState } from "preact/hooks";
import { address, go } from "../../route";
import { count } from "../../words";
import { send } from "../api";
import { changed, useHub } from "../load";
import { Answered, Choices, Dialog, failOf, Field, Plan } from "../parts";
import { offered } from "../template";
import { lossOf, objectOf, operationWords, secondsOf } from "../texts";
import type { Cluster, Operation, Preview } from "../wire";
import { useTemplate } from "./create";

export type Wish = Operation["operation"] | "lease";

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

/** The values of an operation as a person fills them in. */
function valuesOf(cluster: Cluster, again: Operation | undefined) {
  const values = { nodes: cluster.wanted.nodes, some: [] as string[], gone: [] as string[], config: cluster.wanted.config ?? {} };
  switch (again?.operation) {
    case "resize":
      return { ...values, nodes: again.nodes };
    case "services":
      return { ...values, some: again.add, gone: again.remove };
    case "configure":
      return { ...values, config: again.config };
    case "start":
    case "stop":
    case "restart":
      return { ...values, some: again.services };
    default:
      return values;
  }
}

/** An operation: its values first, then its plan, then the order. `again`: with the values of an earlier order. */
export function Order({ cluster, what, node, again, close }: { cluster: Cluster; what: Wish; node: string; again?: Operation; close: () => void }) {
  const [first] = useState(() => valuesOf(cluster, again));
  const [nodes, setNodes] = useState(String(first.nodes));
  const [some, setSome] = useState(first.some);
  const [gone, setGone] = useState(first.gone);
  const [config, setConfig] = useState(() => JSON.stringify(first.config, null, 2));
  const [lease, setLease] = useState("7d");
  const [plan, setPlan] = useState<{ of: string; plan: Preview } | null>(null);
  const [note, setNote] = useState("");
  const of = { tenant: cluster.tenant };
  const seconds = secondsOf(lease);
  const parsed = objectOf(config);
  const operation = operationOf();

  function operationOf(): Operation | null {
    switch (what) {
      case "resize":
        return /^[1-9]\d{0,4}$/.test(nodes) ? { operation: "resize", nodes: Number(nodes) } : null;
      case "services":
        return some.length + gone.length > 0 ? { operation: "services", add: some, remove: gone } : null;
      case "configure":
        return parsed ? { operation: "configure", config: parsed } : null;
      case "start":
      case "stop":
      case "restart":
        return { operation: what, services: some };
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
      await send("PUT", ["clusters", cluster.name, "lease"], { lease_s: seconds }, of);
      changed();
      return undefined;
    }
    if (!shown) {
      const made = await send<Preview>("POST", ["clusters", cluster.name, "preview"], operation, of).catch((error: unknown) => {
        // A cluster whose template is broken can be deleted, too.
        if (what !== "delete") throw error;
        setNote(failOf(error).error);
        return NO_PLAN;
      });
      setPlan({ of: values, plan: made });
      return false;
    }
    // The hub refuses the order if the cluster has changed since the plan.
    const base: Record<string, string> = shown.base ? { ...of, base: shown.base } : of;
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
      {what === "services" && <Changes cluster={cluster} add={some} remove={gone} set={(add, remove) => (setSome(add), setGone(remove))} />}
      {(what === "start" || what === "stop" || what === "restart") && <Some cluster={cluster} chosen={some} set={setSome} />}
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

/** The services that the template offers and the cluster has: a change of the choice adds and removes. */
function Changes({ cluster, add, remove, set }: { cluster: Cluster; add: string[]; remove: string[]; set: (add: string[], remove: string[]) => void }) {
  const template = useTemplate(cluster.wanted.template, cluster.tenant);
  const services = useHub<string[]>(["catalogue", "services"], { tenant: cluster.tenant });
  const choose = (present: string[], chosen: string[]) =>
    set(
      chosen.filter((one) => !present.includes(one)),
      present.filter((one) => !chosen.includes(one)),
    );
  return (
    <Answered of={template}>
      {(of) => {
        const present = cluster.wanted.services ?? of.defaults?.services ?? [];
        const all = [...new Set([...present, ...add, ...offered(of, services.value ?? [])])];
        const chosen = [...present.filter((one) => !remove.includes(one)), ...add];
        return <Choices cls="services" title="Services of the cluster" all={all} chosen={chosen} set={(chosen) => choose(present, chosen)} />;
      }}
    </Answered>
  );
}

/** Some of the cluster's services. */
function Some({ cluster, chosen, set }: { cluster: Cluster; chosen: string[]; set: (chosen: string[]) => void }) {
  const template = useTemplate(cluster.wanted.template, cluster.tenant);
  return (
    <Answered of={template}>
      {(of) => <Choices cls="services" title="Services; none: all" all={[...new Set([...(cluster.wanted.services ?? of.defaults?.services ?? []), ...chosen])]} chosen={chosen} set={set} />}
    </Answered>
  );
}
