// Small parts of the hub's views.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Columns, Loading, Mark } from "../marks";
import { address } from "../route";
import type { Loaded } from "../use-load";
import { moment, span } from "../words";
import { me, ofTenant, Refused, tenant } from "./api";
import { CLASS_OF, list, machineLine, stageLines } from "./texts";
import type { Fault, Preview } from "./wire";

export function StateWord({ state }: { state: keyof typeof CLASS_OF }) {
  const cls = CLASS_OF[state];
  return (
    <span class={`class-word state-${cls}`}>
      <Mark cls={cls} />
      {state}
    </span>
  );
}

/** A cluster; with its tenant if the view shows all tenants. */
export const ClusterLink = ({ name, of }: { name: string; of?: string }) => (
  <a class="id" href={address("cluster", name, of ? ofTenant(of) : {})}>
    {of && me.value?.tenant === null && !tenant.value ? `${of}/${name}` : name}
  </a>
);

export const JobLink = ({ id }: { id: number }) => <a href={address("job", String(id))}>job {id}</a>;

export function Moment({ ms }: { ms: number | undefined }) {
  if (ms === undefined) return <span class="muted">–</span>;
  return (
    <time class="number" dateTime={new Date(ms).toISOString()}>
      {moment(ms, Date.now())}
    </time>
  );
}

const DAY = 86_400_000;

/** How long until a moment: the end of a lease. */
export function Until({ ms }: { ms: number | undefined }) {
  if (ms === undefined) return <span class="muted">no end</span>;
  const left = ms - Date.now();
  return (
    <time class={`number ${left < DAY ? "warning" : ""}`} dateTime={new Date(ms).toISOString()} title={moment(ms, 0)}>
      {left > 0 ? `in ${span(left)}` : "ended"}
    </time>
  );
}

export interface Fail {
  error: string;
  hint: string;
  faults: Fault[];
}

export function failOf(error: unknown): Fail {
  if (error instanceof Refused) return { error: error.message, hint: error.hint, faults: error.faults };
  return { error: error instanceof Error ? error.message : String(error), hint: "", faults: [] };
}

/** The faults of a model, a line each. */
export function Findings({ of }: { of: Fault[] }) {
  return (
    <>
      {of.map((fault) => (
        <p key={`${fault.place}${fault.message}`} class="finding">
          {fault.place && <code>{fault.place}</code>} {fault.message}
          {fault.help?.map((help) => ` (${help})`)}
        </p>
      ))}
    </>
  );
}

/** A failure with its hint, and the faults of a model. */
export function Failed({ error, hint = "", faults = [], again }: Partial<Fail> & { error: string; again?: () => void }) {
  if (!error) return null;
  return (
    <div class="trouble" role="alert">
      <p>
        <Mark cls={3} /> {error}
      </p>
      <Findings of={faults} />
      {hint && <p class="hint">{hint}</p>}
      {again && (
        <button type="button" class="small" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

/** The content of a view once its answer is there. An older answer stays while a newer one fails. */
export function Answered<T>({ of, children }: { of: Loaded<T>; children: (value: T) => ComponentChildren }) {
  return (
    <>
      {of.error && <Failed error={of.error} hint={of.hints[0] ?? ""} again={of.again} />}
      {of.value !== undefined ? (
        children(of.value)
      ) : of.error ? null : (
        <Loading />
      )}
    </>
  );
}

/** The nodes, machines and stages of a plan. */
export function Plan({ plan }: { plan: Preview }) {
  const stages = stageLines(plan);
  return (
    <div class="plan">
      <p>{machineLine(plan)}</p>
      {plan.nodes.length > 0 && (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Nodes afterwards">
          <table class="list">
            <Columns of={["Node", "Machine", "Hardware", "Image", "Services"]} />
            <tbody>
              {plan.nodes.map((node) => (
                <tr key={node.name}>
                  <th scope="row" class="id">
                    {node.name}
                  </th>
                  <td>{plan.create.includes(node.name) ? "new" : "stays"}</td>
                  <td>{node.hardwaretype ?? "–"}</td>
                  <td>{node.imagetype ?? "–"}</td>
                  <td>{list(node.services, 12)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {stages.length > 0 && (
        <>
          <h3>Stages, one after the other</h3>
          <ol class="stages">
            {stages.map((line, at) => (
              <li key={at}>{line}</li>
            ))}
          </ol>
        </>
      )}
    </div>
  );
}

/** A dialog with a form. `typed`: the person must type this text first. */
export function Dialog(props: {
  title: string;
  button: string;
  typed?: string;
  ready?: boolean;
  close: () => void;
  /** `false`: the dialog stays open. */
  submit: () => Promise<void | false>;
  children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [fail, setFail] = useState<Fail | null>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const ready = props.ready !== false && (props.typed === undefined || typed.trim() === props.typed) && !busy;
  const submit = async (event: Event) => {
    event.preventDefault();
    if (!ready) return;
    setBusy(true);
    setFail(null);
    try {
      if ((await props.submit()) !== false) {
        props.close();
        return;
      }
      setBusy(false);
    } catch (error) {
      setFail(failOf(error));
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} class="ask" aria-labelledby="dialog-title" onClose={props.close}>
      <form onSubmit={submit}>
        <h2 id="dialog-title">{props.title}</h2>
        {props.children}
        {props.typed !== undefined && (
          <label class="typed">
            <span>
              Type <code>{props.typed}</code> to confirm
            </span>
            <input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} autocomplete="off" spellcheck={false} />
          </label>
        )}
        {fail && <Failed {...fail} />}
        <footer>
          <button type="submit" class={props.typed === undefined ? "primary" : "danger"} disabled={!ready}>
            {busy ? "Working…" : props.button}
          </button>
          <button type="button" onClick={props.close}>
            Close
          </button>
        </footer>
      </form>
    </dialog>
  );
}

/** A labelled field of a form. */
export function Field(props: { label: string; hint?: string; children: ComponentChildren }) {
  return (
    <label class="field">
      <span class="field-label">{props.label}</span>
      {props.children}
      {props.hint && <span class="muted field-hint">{props.hint}</span>}
    </label>
  );
}

/** Names to choose from, any number of them. */
export function Choices<T extends string>({ title, all, chosen, set, cls }: { title: string; all: readonly T[]; chosen: T[]; set: (chosen: T[]) => void; cls?: string }) {
  if (all.length === 0) return null;
  return (
    <fieldset>
      <legend>{title}</legend>
      <div class={`choices ${cls ?? ""}`}>
        {all.map((name) => (
          <label key={name} class="choice">
            <input type="checkbox" checked={chosen.includes(name)} onChange={(event) => set(event.currentTarget.checked ? [...chosen, name] : chosen.filter((one) => one !== name))} />
            <span class="id">{name}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}
