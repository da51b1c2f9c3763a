// The catalogue: templates, services, providers, types of hardware and images, with their versions.
import { useState } from "preact/hooks";
import { Empty, Section } from "../../marks";
import { address, go } from "../../route";
import { get, me, send } from "../api";
import { changed, useHub } from "../load";
import { Answered, Dialog, Failed, failOf, Field, Moment, type Fail } from "../parts";
import { objectOf } from "../texts";
import { SECTIONS, type Entity, type SectionName } from "../wire";
import { Export, Import, SharedBox } from "./exchange";

const TITLES: Record<SectionName, string> = {
  templates: "Templates",
  services: "Services",
  providers: "Providers",
  hardwaretypes: "Hardware types",
  imagetypes: "Image types",
};

const isAdministrator = () => me.value?.standing !== "user";

export function CatalogueView() {
  const [asks, setAsks] = useState<"new" | "import" | "export" | null>(null);
  const close = () => setAsks(null);
  return (
    <div class="view">
      <div class="fields">
        <h1>Catalogue</h1>
        <span class="grow" />
        <button type="button" onClick={() => setAsks("export")}>
          Export
        </button>
        {isAdministrator() && (
          <>
            <button type="button" onClick={() => setAsks("import")}>
              Import
            </button>
            <button type="button" class="primary" onClick={() => setAsks("new")}>
              New entity
            </button>
          </>
        )}
      </div>
      <div class="columns">
        {SECTIONS.map((section) => (
          <Names key={section} section={section} />
        ))}
      </div>
      {asks === "new" && <NewEntity close={close} />}
      {asks === "import" && <Import close={close} />}
      {asks === "export" && <Export close={close} />}
    </div>
  );
}

function Names({ section }: { section: SectionName }) {
  const names = useHub<string[]>(["catalogue", section], {}, 10_000);
  return (
    <Section title={TITLES[section]}>
      <Answered of={names}>
        {(all) =>
          all.length === 0 ? (
            <Empty>None that you may see.</Empty>
          ) : (
            <ul class="rows">
              {all.map((name) => (
                <li key={name}>
                  <a class="id" href={address("entity", `${section}/${name}`)}>
                    {name}
                  </a>
                </li>
              ))}
            </ul>
          )
        }
      </Answered>
    </Section>
  );
}

function NewEntity({ close }: { close: () => void }) {
  const [section, setSection] = useState<SectionName>("templates");
  const [name, setName] = useState("");
  const [text, setText] = useState("{\n}");
  const [shared, setShared] = useState(false);
  const definition = objectOf(text);
  const submit = async () => {
    await send("PUT", ["catalogue", section, name.trim()], definition, shared ? { shared: "true" } : {});
    changed();
    go(address("entity", `${section}/${name.trim()}`));
  };
  return (
    <Dialog title="New entity of the catalogue" button="Save" ready={name.trim() !== "" && definition !== null} close={close} submit={submit}>
      <Field label="Section">
        <select value={section} onChange={(event) => setSection(event.currentTarget.value as SectionName)}>
          {SECTIONS.map((one) => (
            <option key={one} value={one}>
              {TITLES[one]}
            </option>
          ))}
        </select>
      </Field>
      <Field label="Name">
        <input required value={name} onInput={(event) => setName(event.currentTarget.value)} autocapitalize="none" autocomplete="off" spellcheck={false} />
      </Field>
      <Field label="Definition, as JSON" hint={definition ? "the same keys as in a model" : "this is no object in JSON yet"}>
        <textarea rows={12} value={text} onInput={(event) => setText(event.currentTarget.value)} spellcheck={false} />
      </Field>
      {me.value?.tenant === null && <SharedBox on={shared} set={setShared} />}
    </Dialog>
  );
}

export function EntityView({ of }: { of: string }) {
  const [section = "", ...rest] = of.split("/");
  const name = rest.join("/");
  const [version, setVersion] = useState("");
  const [edits, setEdits] = useState(false);
  const [asks, setAsks] = useState(false);
  const path = ["catalogue", section, name];
  const entity = useHub<Entity>(path, version ? { version } : {});
  const versions = useHub<Entity[]>([...path, "versions"]);
  return (
    <div class="view">
      <Answered of={entity}>
        {(found) => (
          <>
            <header class="panel head">
              <div class="fields">
                <h1 class="id">{found.name}</h1>
                <span class="muted">{TITLES[found.kind]}</span>
                <span class="grow" />
                {isAdministrator() && !edits && (
                  <>
                    <button type="button" onClick={() => setEdits(true)}>
                      {version ? "Edit this version" : "Edit"}
                    </button>
                    <button type="button" class="danger" onClick={() => setAsks(true)}>
                      Delete
                    </button>
                  </>
                )}
              </div>
              <p class="muted">
                {found.author} wrote version <span class="id">{found.version.slice(0, 12)}</span> at <Moment ms={found.written_ms} />
              </p>
            </header>
            {edits ? (
              <Editor
                entity={found}
                path={path}
                end={() => {
                  setEdits(false);
                  setVersion("");
                }}
              />
            ) : (
              <Section title="Definition">
                <pre class="output tall" tabIndex={0}>
                  {JSON.stringify(found.definition, null, 2)}
                </pre>
              </Section>
            )}
            {asks && <Removal entity={found} path={path} close={() => setAsks(false)} />}
          </>
        )}
      </Answered>
      <Section title="Versions">
        <Answered of={versions}>
          {(all) => (
            <ul class="rows">
              {all.map((one, at) => (
                <li key={one.version}>
                  <button type="button" class="plain link" aria-pressed={version === one.version || (version === "" && at === 0)} onClick={() => setVersion(at === 0 ? "" : one.version)}>
                    <span class="id">{one.version.slice(0, 12)}</span>
                  </button>
                  <span class="grow">{one.author}</span>
                  <Moment ms={one.written_ms} />
                </li>
              ))}
            </ul>
          )}
        </Answered>
      </Section>
    </div>
  );
}

function Editor({ entity, path, end }: { entity: Entity; path: string[]; end: () => void }) {
  const [text, setText] = useState(() => JSON.stringify(entity.definition, null, 2));
  const [shared, setShared] = useState(false);
  const [fail, setFail] = useState<Fail | null>(null);
  const [busy, setBusy] = useState(false);
  const definition = objectOf(text);
  const save = async (event: Event) => {
    event.preventDefault();
    if (!definition || busy) return;
    setBusy(true);
    setFail(null);
    try {
      // The change of another person since this page read the entity must not be lost.
      const newest = (await get<Entity[]>([...path, "versions"]))[0];
      if (newest && newest.written_ms > entity.written_ms && newest.version !== entity.version) {
        throw new Error(`${newest.author} has written a newer version meanwhile: copy your text, and read that version`);
      }
      await send("PUT", path, definition, shared ? { shared: "true" } : {});
      changed();
      end();
    } catch (error) {
      setFail(failOf(error));
      setBusy(false);
    }
  };
  return (
    <Section title="Definition">
      <form class="stack" onSubmit={save}>
        <Field label="As JSON" hint={definition ? "the hub checks the whole model before it saves" : "this is no object in JSON yet"}>
          <textarea rows={24} value={text} onInput={(event) => setText(event.currentTarget.value)} spellcheck={false} />
        </Field>
        {me.value?.tenant === null && <SharedBox on={shared} set={setShared} />}
        {fail && <Failed {...fail} />}
        <div class="buttons">
          <button type="submit" class="primary" disabled={!definition || busy}>
            {busy ? "Checking…" : "Save"}
          </button>
          <button type="button" onClick={end}>
            Discard
          </button>
        </div>
      </form>
    </Section>
  );
}

function Removal({ entity, path, close }: { entity: Entity; path: string[]; close: () => void }) {
  const [shared, setShared] = useState(false);
  const submit = async () => {
    await send("DELETE", path, undefined, shared ? { shared: "true" } : {});
    changed();
    go(address("catalogue"));
  };
  return (
    <Dialog title={`Delete ${entity.name}`} button="Delete" typed={entity.name} close={close} submit={submit}>
      <p>Clusters keep the version that they use. The versions stay in the catalogue's history.</p>
      {me.value?.tenant === null && <SharedBox on={shared} set={setShared} />}
    </Dialog>
  );
}
