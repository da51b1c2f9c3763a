// The model: edited with the checks of `cobgen`, its layout and plan beside it, saved, compared with the latest
// generation, published.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, request } from "../api";
import { Refusal } from "../refusal";
import type { Editor, File } from "../editor/main";
import type { Finding } from "../editor/language";
import { useAsk, useLoad } from "../load";
import { Empty, Loading, Mark, Section, Trouble } from "../parts";
import { carryOut, propose } from "../proposal";
import { cluster } from "../store";
import type { Changes } from "../wire";
import { count } from "../words";
import { Draft as Preview } from "./draft";
import { ChangeList } from "./generations";

interface Files {
  path: string;
  files: File[];
  /** The address of the folder; absent: the model is a single file. */
  folder?: string;
  depot: boolean;
}

interface Text {
  text: string;
  hash: string;
}

/** The editor's program, which is loaded when it is needed. */
const PROGRAM = "/editor.js";
/** A name that the server takes for a new file. */
const NAME = /^[A-Za-z0-9][\w.-]{0,90}\.(yaml|yml|json)$/;
/** The findings in the list. */
const MOST = 50;

interface Program {
  Editor: new (place: HTMLElement, options: ConstructorParameters<typeof Editor>[1]) => Editor;
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

export function ModelView() {
  const files = useLoad<Files>("/api/model", (signal) => get<Files>("/api/model", {}, signal));
  return (
    <div class="view">
      <h1 class="hidden">Model</h1>
      {files.loading && <Loading />}
      <Trouble error={files.error} hints={files.hints} again={files.again} />
      {files.value && files.value.files.length === 0 && <Empty>The folder {files.value.path} has no files of a model.</Empty>}
      {files.value && files.value.files.length > 0 && <Desk key={files.value.path} model={files.value} />}
    </div>
  );
}

/** A file as it is on the disk, with no hash if it is not there yet, and as it is in the editor. */
interface Draft {
  disk: Text;
  text: string;
}

function Desk({ model }: { model: Files }) {
  const place = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const drafts = useRef(new Map<string, Draft>());
  const [files, setFiles] = useState(model.files);
  const [name, setName] = useState(model.files[0]!.name);
  const [findings, setFindings] = useState<Record<string, Finding[]>>({});
  const [trouble, setTrouble] = useState<{ error: string; hint: string } | null>(null);
  const [saved, setSaved] = useState(0);
  const [version, redraw] = useState(0);
  const [started, setStarted] = useState(false);
  const changed = files.filter((file) => isChanged(drafts.current.get(file.name)));

  const show = async (to: string, line?: number, fresh = false) => {
    const file = files.find((candidate) => candidate.name === to);
    if (!file || !editor.current) return;
    setTrouble(null);
    try {
      let text: string | undefined;
      if (fresh || !drafts.current.has(to)) {
        const disk = await get<Text>("/api/model/file", { name: to });
        drafts.current.set(to, { disk, text: disk.text });
        text = disk.text;
      }
      editor.current.open(file, text, line);
      setName(to);
    } catch (error) {
      setTrouble({ error: messageOf(error), hint: "" });
    }
  };

  /** Adds a file, which is written when it is saved. */
  const add = (to: string) => {
    setTrouble(null);
    const file = { name: to, uri: `${model.folder}${encodeURIComponent(to)}` };
    drafts.current.set(to, { disk: { text: "", hash: "" }, text: "" });
    setFiles([...files, file].sort((a, b) => (a.name < b.name ? -1 : 1)));
    setName(to);
    editor.current?.open(file, "");
    editor.current?.goTo(0);
    redraw((before) => before + 1);
  };

  const discard = async () => {
    const file = files.find((candidate) => candidate.name === name);
    if (!file || drafts.current.get(name)?.disk.hash !== "") return show(name, undefined, true);
    drafts.current.delete(name);
    editor.current?.remove(file);
    setFiles(files.filter((one) => one !== file));
    redraw((before) => before + 1);
    await show(files.find((one) => one !== file)!.name);
  };

  const save = async () => {
    setTrouble(null);
    for (const [file, draft] of drafts.current) {
      if (!isChanged(draft)) continue;
      const { text } = draft;
      try {
        const response = await request("/api/model/file", {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ name: file, text, base: draft.disk.hash || undefined }),
        });
        const { hash } = (await response.json()) as { hash: string };
        draft.disk = { text, hash };
      } catch (error) {
        setTrouble({ error: messageOf(error), hint: error instanceof Refusal ? error.hint : "" });
        return;
      }
    }
    setSaved((before) => before + 1);
  };
  const actions = useRef({ show, save });
  actions.current = { show, save };

  useEffect(() => {
    let left = false;
    void (async () => {
      try {
        const { Editor } = (await import(PROGRAM)) as Program;
        if (left || !place.current) return;
        editor.current = new Editor(place.current, {
          ask: request,
          changed: (file, text) => {
            const draft = drafts.current.get(file);
            if (draft) draft.text = text;
            redraw((before) => before + 1);
          },
          found: (file, list) => setFindings((before) => ({ ...before, [file]: list })),
          ended: (why) => setTrouble({ error: `The checks have ended: ${why}`, hint: "reload the page" }),
          save: () => void actions.current.save(),
          show: (file, line) => void actions.current.show(file, line),
        });
        await actions.current.show(model.files[0]!.name);
        await editor.current.start(model.files);
        if (!left) setStarted(true);
      } catch (error) {
        setTrouble({ error: messageOf(error), hint: "" });
      }
    })();
    // A text that was not saved is not lost without a question.
    const leave = (event: BeforeUnloadEvent) => {
      if ([...drafts.current.values()].some(isChanged)) event.preventDefault();
    };
    addEventListener("beforeunload", leave);
    return () => {
      left = true;
      removeEventListener("beforeunload", leave);
      editor.current?.destroy();
      editor.current = null;
    };
  }, []);

  const all = files.flatMap((file) => (findings[file.name] ?? []).map((finding) => ({ file: file.name, finding })));
  const errors = all.filter(({ finding }) => (finding.severity ?? 1) === 1).length;
  const trial = <T,>(command: "cob.solve" | "cob.plan", from: number) => editor.current!.trial<T>(command, from);
  return (
    <>
      <div class="model-desk">
        <Section title="Model" more={<code class="muted">{model.path}</code>}>
          <div class="model-bar">
            {files.length > 1 && (
              <label>
                <span class="hidden">File</span>
                <select value={name} onChange={(event) => void show(event.currentTarget.value)}>
                  {files.map((file) => (
                    <option key={file.name} value={file.name}>
                      {file.name}
                      {isChanged(drafts.current.get(file.name)) ? " (changed)" : ""}
                    </option>
                  ))}
                </select>
              </label>
            )}
            {model.folder !== undefined && <NewFile names={files.map((file) => file.name)} add={add} />}
            <span class="grow muted" role="status">
              {changed.length > 0 ? "changes are not saved" : saved > 0 ? "saved" : ""}
            </span>
            <button type="button" class="small" onClick={() => void editor.current?.format()}>
              Format
            </button>
            <button type="button" class="small" disabled={changed.length === 0} onClick={() => void discard()}>
              Discard
            </button>
            <button type="button" class="primary" disabled={changed.length === 0} onClick={() => void save()}>
              Save
            </button>
          </div>
          {trouble && <Trouble error={trouble.error} hints={trouble.hint ? [trouble.hint] : []} />}
          <div ref={place} class="model-editor" />
          <p class="muted">Ctrl-Space completes, F12 goes to a definition, Ctrl-S saves. Escape and Tab leave the editor.</p>
        </Section>
        <div class="stack">
          <Section title="Findings" more={<span class="muted">{all.length === 0 ? "" : count(all.length, "finding")}</span>}>
            {all.length === 0 && <Empty>The model has no errors.</Empty>}
            <ul class="change-list">
              {all.slice(0, MOST).map(({ file, finding }, at) => (
                <li key={at}>
                  <Mark cls={(finding.severity ?? 1) === 1 ? 3 : 2} />{" "}
                  <button type="button" class="link" onClick={() => void show(file, finding.range.start.line)}>
                    {file}:{finding.range.start.line + 1}
                  </button>{" "}
                  <span class="finding">{finding.message}</span>
                </li>
              ))}
            </ul>
          </Section>
          {started && <Preview trial={trial} version={version} depot={model.depot} />}
        </div>
      </div>
      {model.depot && <Publish saved={saved} unsaved={changed.length > 0} errors={errors} />}
    </>
  );
}

/** A button that asks for the name of a new file. */
function NewFile({ names, add }: { names: string[]; add: (name: string) => void }) {
  const [name, setName] = useState<string | null>(null);
  if (name === null) {
    return (
      <button type="button" class="small" onClick={() => setName("")}>
        New file…
      </button>
    );
  }
  const fault = names.includes(name) ? "the model has this file" : NAME.test(name) ? "" : "for example services.yaml: letters, digits, . _ -";
  const submit = (event: Event) => {
    event.preventDefault();
    if (fault) return;
    add(name);
    setName(null);
  };
  return (
    <form class="model-new" onSubmit={submit}>
      <label>
        <span class="hidden">Name of the new file</span>
        <input type="text" value={name} placeholder="NAME.yaml" maxLength={100} autofocus onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <button type="submit" class="small" disabled={fault !== ""}>
        Add
      </button>
      <button type="button" class="small" onClick={() => setName(null)}>
        Cancel
      </button>
      {name !== "" && fault && <span class="muted">{fault}</span>}
    </form>
  );
}

function isChanged(draft: Draft | undefined): boolean {
  return draft !== undefined && (draft.disk.hash === "" || draft.text !== draft.disk.text);
}

/** The changes since the latest generation, and the button that publishes them. */
function Publish({ saved, unsaved, errors }: { saved: number; unsaved: boolean; errors: number }) {
  const [message, setMessage] = useState("");
  const { newest, generation } = cluster.value ?? {};
  const asked = useAsk<Changes>("changes", {}, `${saved} ${newest ?? 0}`, 0);
  const changes = asked.value?.answer ?? null;
  const isNew = asked.value?.exit === 1;
  const submit = async (event: Event) => {
    event.preventDefault();
    if (await carryOut({ order: "publish", message: message.trim() })) setMessage("");
  };
  return (
    <Section title="Changes" more={<span class="muted">the saved model beside the latest generation</span>} class={asked.loading ? "reserve" : ""}>
      {asked.loading && <Loading />}
      <Trouble error={asked.error} hints={asked.hints} again={asked.again} />
      {changes && !asked.error && (isNew ? <ChangeList changes={changes} /> : <Empty>The latest generation has the same content.</Empty>)}
      <form class="model-bar" onSubmit={submit}>
        <label class="grow">
          <span class="hidden">Description</span>
          <input
            type="text"
            placeholder="Description, for the list of generations"
            value={message}
            maxLength={4000}
            onInput={(event) => setMessage(event.currentTarget.value)}
          />
        </label>
        <button type="submit" class="primary" disabled={unsaved || errors > 0 || !isNew}>
          Publish
        </button>
        {newest !== undefined && generation !== undefined && newest > generation && (
          <button type="button" onClick={() => propose({ order: "switch", to: newest })}>
            Switch to {newest}…
          </button>
        )}
      </form>
      {unsaved && <p class="muted">Save the model before you publish it.</p>}
    </Section>
  );
}
