// The whole catalogue as a document: of a model, or of Coopr.
import { useState } from "preact/hooks";
import { get, me, send } from "../api";
import { changed } from "../load";
import { Dialog, Field, Findings } from "../parts";
import { objectOf } from "../texts";
import type { Exchanged, Fault } from "../wire";

type Form = "model" | "coopr";

const FORMS: [Form, string][] = [
  ["model", "sections of a model"],
  ["coopr", "Coopr's export"],
];

function Choices(props: { form: Form; setForm: (form: Form) => void; shared: boolean; setShared: (on: boolean) => void }) {
  return (
    <>
      <Field label="Form">
        <select value={props.form} onChange={(event) => props.setForm(event.currentTarget.value as Form)}>
          {FORMS.map(([form, words]) => (
            <option key={form} value={form}>
              {words}
            </option>
          ))}
        </select>
      </Field>
      {me.value?.tenant === null && <SharedBox on={props.shared} set={props.setShared} />}
    </>
  );
}

export function SharedBox({ on, set }: { on: boolean; set: (on: boolean) => void }) {
  return (
    <label class="choice">
      <input type="checkbox" checked={on} onChange={(event) => set(event.currentTarget.checked)} /> shared by all tenants
    </label>
  );
}

/** What a form can't express. */
function Lost({ of, what }: { of: Fault[]; what: string }) {
  return (
    <div role="status">
      <p>{what}</p>
      <Findings of={of} />
    </div>
  );
}

function words(form: Form, shared: boolean): Record<string, string> {
  return shared ? { form, shared: "true" } : { form };
}

function keep(document_: unknown): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(document_, null, 2), "\n"], { type: "application/json" }));
  link.download = "catalogue.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

export function Export({ close }: { close: () => void }) {
  const [form, setForm] = useState<Form>("model");
  const [shared, setShared] = useState(false);
  const [lost, setLost] = useState<Fault[]>([]);
  const submit = async () => {
    const answer = await get<Exchanged & { document: unknown }>(["export"], words(form, shared));
    keep(answer.document);
    setLost(answer.lost ?? []);
    return answer.lost === undefined ? undefined : (false as const);
  };
  return (
    <Dialog title="Export the catalogue" button="Download" close={close} submit={submit}>
      <Choices form={form} setForm={setForm} shared={shared} setShared={setShared} />
      <p class="muted">The document has the newest versions that you may see. Files, such as scripts, are not part of it.</p>
      {lost.length > 0 && <Lost of={lost} what="The document lacks what its form can't express:" />}
    </Dialog>
  );
}

export function Import({ close }: { close: () => void }) {
  const [form, setForm] = useState<Form>("model");
  const [shared, setShared] = useState(false);
  const [text, setText] = useState("");
  const [done, setDone] = useState<(Exchanged & { entities: number }) | null>(null);
  const chosen = objectOf(text);
  const submit = async () => {
    const answer = await send<Exchanged & { entities: number }>("POST", ["import"], chosen, words(form, shared));
    changed();
    setDone(answer);
    setText("");
    return answer.lost === undefined ? undefined : (false as const);
  };
  return (
    <Dialog title="Import entities" button="Import" ready={chosen !== null} close={close} submit={submit}>
      <Field label="File" hint={text === "" || chosen ? "a document in JSON" : "this is no object in JSON"}>
        <input type="file" accept=".json,application/json" onChange={async (event) => setText((await event.currentTarget.files?.[0]?.text()) ?? "")} />
      </Field>
      <Choices form={form} setForm={setForm} shared={shared} setShared={setShared} />
      <p class="muted">All entities become a single version, or none of them. Entities that the document lacks stay.</p>
      {done?.lost && <Lost of={done.lost} what={`${done.entities} entities were imported, without these parts:`} />}
    </Dialog>
  );
}
