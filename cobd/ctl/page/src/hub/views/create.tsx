// A new cluster: template, values that the template leaves open, plan, order.
import { useState } from "preact/hooks";
import { Section } from "../../marks";
import { address, go } from "../../route";
import { send } from "../api";
import { changed, useHub } from "../load";
import { Answered, Failed, failOf, Field, Plan, type Fail } from "../parts";
import { list, secondsOf } from "../texts";
import type { Entity, Preview, Wanted } from "../wire";
import { objectOf } from "./cluster";
import { UsagePanel } from "./clusters";

/** What the page reads of a template; docs/templates.md has all keys. */
interface Template {
  description?: string;
  partial?: boolean;
  compatibility?: { services?: string[]; hardwaretypes?: string[]; imagetypes?: string[] };
  defaults?: { services?: string[]; provider?: string; hardwaretype?: string; imagetype?: string; config?: Record<string, unknown> };
}

export function CreateView() {
  const templates = useHub<string[]>(["catalogue", "templates"]);
  const [chosen, setChosen] = useState("");
  return (
    <div class="view">
      <h1>New cluster</h1>
      <UsagePanel />
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
      {chosen && <Values key={chosen} template={chosen} />}
    </div>
  );
}

function About({ name }: { name: string }) {
  const entity = useHub<Entity>(["catalogue", "templates", name]);
  const template = entity.value?.definition as Template | undefined;
  return <span class="muted">{template?.description ?? ""}</span>;
}

function Values({ template }: { template: string }) {
  const entity = useHub<Entity>(["catalogue", "templates", template]);
  return <Answered of={entity}>{(found) => <Form template={template} of={(found.definition ?? {}) as Template} />}</Answered>;
}

function Form({ template, of }: { template: string; of: Template }) {
  const services = [...new Set([...(of.defaults?.services ?? []), ...(of.compatibility?.services ?? [])])];
  const [name, setName] = useState("");
  const [nodes, setNodes] = useState("3");
  const [lease, setLease] = useState("");
  const [wanted, setWanted] = useState<string[]>(of.defaults?.services ?? []);
  const [machine, setMachine] = useState({ provider: "", hardwaretype: "", imagetype: "" });
  const [config, setConfig] = useState("{}");
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
            <input required value={name} onInput={(event) => setName(event.currentTarget.value)} autocapitalize="none" autocomplete="off" spellcheck={false} />
          </Field>
          <Field label="Nodes">
            <input required inputMode="numeric" value={nodes} onInput={(event) => setNodes(event.currentTarget.value)} />
          </Field>
          <Field label="Lease" hint={seconds === null ? "write 36h, 7d or 2w" : "empty: as the hub says; 36h, 7d, 2w"}>
            <input value={lease} onInput={(event) => setLease(event.currentTarget.value)} autocomplete="off" />
          </Field>
        </div>
        {services.length > 0 && (
          <fieldset>
            <legend>Services</legend>
            <div class="choices">
              {services.map((service) => (
                <label key={service} class="choice">
                  <input
                    type="checkbox"
                    checked={wanted.includes(service)}
                    onChange={(event) => {
                      const on = event.currentTarget.checked;
                      setWanted((before) => (on ? [...before, service] : before.filter((one) => one !== service)));
                    }}
                  />
                  <span class="id">{service}</span>
                </label>
              ))}
            </div>
          </fieldset>
        )}
        <details>
          <summary>Machines and configuration</summary>
          <div class="form-grid">
            <Choice label="Provider" section="providers" fixed={of.defaults?.provider} permitted={[]} value={machine.provider} set={(provider) => setMachine({ ...machine, provider })} />
            <Choice label="Hardware" section="hardwaretypes" fixed={of.defaults?.hardwaretype} permitted={of.compatibility?.hardwaretypes ?? []} value={machine.hardwaretype} set={(hardwaretype) => setMachine({ ...machine, hardwaretype })} />
            <Choice label="Image" section="imagetypes" fixed={of.defaults?.imagetype} permitted={of.compatibility?.imagetypes ?? []} value={machine.imagetype} set={(imagetype) => setMachine({ ...machine, imagetype })} />
          </div>
          <Field label="Configuration, as JSON" hint={parsed ? `the keys take the place of the template's: ${list(Object.keys(of.defaults?.config ?? {}), 12) || "it has none"}` : "this is no object in JSON yet"}>
            <textarea rows={5} value={config} onInput={(event) => setConfig(event.currentTarget.value)} spellcheck={false} />
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
