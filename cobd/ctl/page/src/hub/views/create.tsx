// A new cluster: template, values that the template leaves open, plan, order.
import { useState } from "preact/hooks";
import { Section } from "../../marks";
import { address, go, here } from "../../route";
import { useLoad, type Loaded } from "../../use-load";
import { get, me, ofTenant, send, tenant } from "../api";
import { changed, changes, useHub } from "../load";
import { Answered, Choices, Failed, failOf, Field, Plan, type Fail } from "../parts";
import { offered, whole, type Template } from "../template";
import { durationOf, list, objectOf, secondsOf } from "../texts";
import type { Cluster, Entity, Preview, Wanted } from "../wire";
import { UsagePanel } from "./clusters";
import { QueueNotice } from "./queue";

/** What a person has typed: it stays when the session ends, and when another view is shown meanwhile. */
interface Draft {
  name: string;
  nodes: string;
  lease: string;
  wanted: string[];
  machine: { provider: string; hardwaretype: string; imagetype: string };
  config: string;
}

let kept: { user: string; tenant: string; template: string; draft: Draft } | null = null;

/** What the present user has typed for the present tenant. */
const keptHere = () => (kept && kept.user === me.value?.user && kept.tenant === tenant.value ? kept : null);

export function CreateView() {
  const from = here.value.params.get("from");
  return (
    <div class="view">
      <h1>New cluster</h1>
      <QueueNotice />
      <UsagePanel />
      {from ? <Repeated name={from} /> : <Templates />}
    </div>
  );
}

/** A new attempt of a creation, with its values. */
function Repeated({ name }: { name: string }) {
  const cluster = useHub<Cluster>(["clusters", name]);
  return <Answered of={cluster}>{(found) => <Templates before={found} />}</Answered>;
}

function Templates({ before }: { before?: Cluster }) {
  const templates = useHub<string[]>(["catalogue", "templates"]);
  const [chosen, setChosen] = useState(before?.wanted.template ?? keptHere()?.template ?? "");
  return (
    <>
      <Section title="Template">
        <Answered of={templates}>
          {(names) =>
            names.length === 0 ? (
              <p class="muted">The catalogue has no template that you may see. An administrator writes one in the catalogue.</p>
            ) : (
              <div class="choices" role="radiogroup" aria-label="Template">
                {names.map((name) => (
                  <label key={name} class="choice">
                    <input type="radio" name="template" value={name} checked={chosen === name} onChange={() => setChosen(name)} />
                    <span class="id">{name}</span>
                    {chosen === name && <About name={name} />}
                  </label>
                ))}
              </div>
            )
          }
        </Answered>
      </Section>
      {chosen && <Values key={chosen} template={chosen} before={before?.wanted.template === chosen ? before : undefined} />}
    </>
  );
}

function About({ name }: { name: string }) {
  const entity = useHub<Entity>(["catalogue", "templates", name]);
  const template = entity.value?.definition as Template | undefined;
  return <span class="muted">{template?.description ?? ""}</span>;
}

/** A template with its parent and its partials. */
export function useTemplate(name: string, of = tenant.value): Loaded<Template> {
  const query = ofTenant(of);
  const load = (abort: AbortSignal) => whole(name, async (one) => ((await get<Entity>(["catalogue", "templates", one], query, abort)).definition ?? {}) as Template);
  return useLoad(`${me.value?.user} ${of} ${name}`, load, changes.value, 0);
}

function Values({ template, before }: { template: string; before: Cluster | undefined }) {
  const found = useTemplate(template);
  const services = useHub<string[]>(["catalogue", "services"]);
  return <Answered of={found}>{(of) => <Answered of={services}>{(all) => <Form template={template} of={of} services={offered(of, all)} before={before} />}</Answered>}</Answered>;
}

interface FormProps {
  template: string;
  of: Template;
  /** The services that the template offers. */
  services: string[];
  /** A cluster whose creation is repeated. */
  before: Cluster | undefined;
}

function Form({ template, of, services, before }: FormProps) {
  const typed = before ? null : keptHere();
  const [draft, setDraft] = useState<Draft>(() =>
    typed?.template === template
      ? typed.draft
      : {
          name: before?.name ?? "",
          nodes: String(before?.wanted.nodes ?? 3),
          lease: before?.lease_ends_ms === undefined ? "" : durationOf(Math.round((before.lease_ends_ms - before.created_ms) / 1000)),
          wanted: before?.wanted.services ?? of.defaults?.services ?? [],
          machine: { provider: before?.wanted.provider ?? "", hardwaretype: before?.wanted.hardwaretype ?? "", imagetype: before?.wanted.imagetype ?? "" },
          config: JSON.stringify(before?.wanted.config ?? {}, null, 2),
        },
  );
  const { name, nodes, lease, wanted, machine, config } = draft;
  const set = (part: Partial<Draft>) => {
    const next = { ...draft, ...part };
    kept = { user: me.value?.user ?? "", tenant: tenant.value, template, draft: next };
    setDraft(next);
  };
  const [plan, setPlan] = useState<{ of: string; plan: Preview } | null>(null);
  const [fail, setFail] = useState<Fail | null>(null);
  const [busy, setBusy] = useState(false);

  const parsed = objectOf(config);
  const seconds = lease.trim() === "" ? undefined : secondsOf(lease);
  const request = requestOf();
  const values = JSON.stringify(request);
  const shown = plan !== null && plan.of === values ? plan.plan : null;

  function requestOf(): { name: string; wanted: Wanted; lease_s?: number } | null {
    if (name.trim() === "" || !/^[1-9]\d{0,4}$/.test(nodes) || !parsed || seconds === null) return null;
    const isDefault = wanted.length === (of.defaults?.services ?? []).length && wanted.every((one) => of.defaults?.services?.includes(one));
    return {
      name: name.trim(),
      wanted: {
        template,
        nodes: Number(nodes),
        ...(isDefault ? {} : { services: wanted }),
        ...Object.fromEntries(Object.entries(machine).filter(([, value]) => value !== "")),
        ...(Object.keys(parsed).length > 0 ? { config: parsed } : {}),
      },
      ...(seconds === undefined ? {} : { lease_s: seconds }),
    };
  }

  const submit = async (event: Event) => {
    event.preventDefault();
    if (!request || busy) return;
    setBusy(true);
    setFail(null);
    try {
      if (shown) {
        const { job } = await send<{ job: number }>("POST", ["clusters"], request);
        kept = null;
        changed();
        go(address("job", String(job)));
        return;
      }
      setPlan({ of: values, plan: await send<Preview>("POST", ["preview"], request) });
    } catch (error) {
      setFail(failOf(error));
    }
    setBusy(false);
  };

  return (
    <form class="stack" onSubmit={submit}>
      <Section title="Cluster">
        <div class="form-grid">
          <Field label="Name" hint="lower-case letters, digits and -">
            <input required value={name} onInput={(event) => set({ name: event.currentTarget.value })} autocapitalize="none" autocomplete="off" spellcheck={false} />
          </Field>
          <Field label="Nodes">
            <input required inputMode="numeric" value={nodes} onInput={(event) => set({ nodes: event.currentTarget.value })} />
          </Field>
          <Field label="Lease" hint={seconds === null ? "write 36h, 7d or 2w" : "empty: as the hub says; 36h, 7d, 2w"}>
            <input value={lease} onInput={(event) => set({ lease: event.currentTarget.value })} autocomplete="off" />
          </Field>
        </div>
        <Choices cls="services" title="Services" all={services} chosen={wanted} set={(wanted) => set({ wanted })} />
        <details>
          <summary>Machines and configuration</summary>
          <div class="form-grid">
            <Choice label="Provider" section="providers" fixed={of.defaults?.provider} permitted={[]} value={machine.provider} set={(provider) => set({ machine: { ...machine, provider } })} />
            <Choice label="Hardware" section="hardwaretypes" fixed={of.defaults?.hardwaretype} permitted={of.compatibility?.hardwaretypes ?? []} value={machine.hardwaretype} set={(hardwaretype) => set({ machine: { ...machine, hardwaretype } })} />
            <Choice label="Image" section="imagetypes" fixed={of.defaults?.imagetype} permitted={of.compatibility?.imagetypes ?? []} value={machine.imagetype} set={(imagetype) => set({ machine: { ...machine, imagetype } })} />
          </div>
          <Field label="Configuration, as JSON" hint={parsed ? `the keys take the place of the template's: ${list(Object.keys(of.defaults?.config ?? {}), 12) || "it has none"}` : "this is no object in JSON yet"}>
            <textarea rows={5} value={config} onInput={(event) => set({ config: event.currentTarget.value })} spellcheck={false} />
          </Field>
        </details>
        {fail && <Failed {...fail} />}
        {!shown && (
          <div class="buttons">
            <button type="submit" class="primary" disabled={!request || busy}>
              {busy ? "Solving…" : "Show the plan"}
            </button>
          </div>
        )}
      </Section>
      {shown && (
        <Section title="Plan">
          <Plan plan={shown} />
          <div class="buttons">
            <button type="submit" class="primary" disabled={busy}>
              Create {name.trim()}
            </button>
          </div>
        </Section>
      )}
    </form>
  );
}

function Choice(props: { label: string; section: string; fixed: string | undefined; permitted: string[]; value: string; set: (value: string) => void }) {
  const names = useHub<string[]>(["catalogue", props.section]);
  const all = (names.value ?? []).filter((name) => props.permitted.length === 0 || props.permitted.includes(name));
  return (
    <Field label={props.label}>
      <select value={props.value} onChange={(event) => props.set(event.currentTarget.value)}>
        <option value="">{props.fixed ? `${props.fixed} (template)` : "as the template says"}</option>
        {all.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </Field>
  );
}
