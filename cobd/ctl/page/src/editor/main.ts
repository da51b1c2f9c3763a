// The editor of the model, loaded when its view is opened: CodeMirror with the language server of `cobgen`.
//
// It stands in a shadow root, where its styles need no inline style sheet.
import { autocompletion, closeBrackets, completionKeymap, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, foldGutter, foldKeymap, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, lintKeymap, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState, type Text } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, hoverTooltip, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { Language, type Ask, type Finding, type Place } from "./language";

export interface File {
  name: string;
  uri: string;
}

export interface Options {
  ask: Ask;
  /** The text has changed. */
  changed: (file: string, text: string) => void;
  /** The language server has findings about a file. */
  found: (file: string, findings: Finding[]) => void;
  /** The language server has ended. */
  ended: (why: string) => void;
  save: () => void;
  /** Shows another file, at a line. */
  show: (file: string, line: number) => void;
}

const theme = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--surface)", fontSize: "13px", height: "100%" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "20px" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { color: "var(--muted)", backgroundColor: "var(--back)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--accent-soft)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--moving-soft)" },
  ".cm-tooltip, .cm-panels": { color: "var(--text)", backgroundColor: "var(--raised)", border: "1px solid var(--line-strong)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { color: "var(--text)", backgroundColor: "var(--accent-soft)" },
  ".cm-tooltip-hover": { padding: "4px 8px", maxWidth: "60ch", whiteSpace: "pre-wrap" },
  ".cm-panels input, .cm-panels button": { color: "inherit", background: "var(--surface)" },
});

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--moving)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--settled)" },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: "var(--stopped)" },
  { tag: [tags.comment, tags.lineComment], color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.punctuation, tags.separator, tags.squareBracket, tags.brace], color: "var(--muted)" },
]);

const SEVERITIES: Diagnostic["severity"][] = ["error", "error", "warning", "info", "hint"];
const KINDS: Record<number, string> = { 10: "property", 12: "constant", 18: "variable" };

function offset(text: Text, { line, character }: Place): number {
  if (line >= text.lines) return text.length;
  const found = text.line(line + 1);
  return Math.min(found.from + character, found.to);
}

function placeOf(text: Text, at: number): Place {
  const line = text.lineAt(at);
  return { line: line.number - 1, character: at - line.from };
}

/** The name of a file with this address: the files of a model are in one folder. */
function nameOf(uri: string): string {
  return decodeURIComponent(uri.slice(uri.lastIndexOf("/") + 1));
}

/** A browser that replaces a selection itself gives the new text an inline style, which the page's policy forbids. */
function replaceSelection(event: InputEvent, view: EditorView): boolean {
  const { data } = event;
  const { main } = view.state.selection;
  if (event.inputType !== "insertText" || event.isComposing || !data || main.empty) return false;
  const insert = () => view.state.update(view.state.replaceSelection(data), { userEvent: "input.type", scrollIntoView: true });
  const isTaken = view.state.facet(EditorView.inputHandler).some((take) => take(view, main.from, main.to, data, insert));
  if (!isTaken) view.dispatch(insert());
  event.preventDefault();
  return true;
}

/** An open editor. */
export class Editor {
  private readonly view: EditorView;
  private readonly states = new Map<string, EditorState>();
  private readonly findings = new Map<string, Finding[]>();
  private language: Language | null = null;
  private current: File | null = null;

  constructor(
    place: HTMLElement,
    private readonly options: Options,
  ) {
    const root = place.shadowRoot ?? place.attachShadow({ mode: "open" });
    const parent = document.createElement("div");
    parent.className = "root";
    root.replaceChildren(parent);
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(":host, .root { display: block; height: 100%; }");
    root.adoptedStyleSheets = [sheet];
    this.view = new EditorView({ root, parent, state: this.stateOf("", "") });
  }

  /** Starts the language server. Without it the editor works, but has no findings. */
  async start(files: File[]): Promise<void> {
    const found = (uri: string, findings: Finding[]) => {
      const file = nameOf(uri);
      if (file !== this.current?.name && !this.states.has(file) && !files.some((one) => one.name === file)) return;
      this.findings.set(file, findings);
      if (file === this.current?.name) this.mark();
      this.options.found(file, findings);
    };
    this.language = await Language.start(this.options.ask, found, this.options.ended);
    for (const file of files) {
      const state = file.name === this.current?.name ? this.view.state : this.states.get(file.name);
      if (state) this.language.text(file.uri, state.doc.toString());
    }
  }

  /** Shows a file; `text` replaces its text in the editor. */
  open(file: File, text: string | undefined, line?: number): void {
    if (this.current) this.states.set(this.current.name, this.view.state);
    this.current = file;
    const known = this.states.get(file.name);
    const state = text === undefined && known ? known : this.stateOf(file.name, text ?? "");
    this.view.setState(state);
    if (state !== known) this.language?.text(file.uri, state.doc.toString());
    this.mark();
    if (line !== undefined) this.goTo(line);
  }

  /** Forgets a file that was never saved. */
  remove(file: File): void {
    this.states.delete(file.name);
    this.findings.delete(file.name);
    if (this.current === file) this.current = null;
    this.language?.close(file.uri);
    this.options.found(file.name, []);
  }

  /** The layout (`cob.solve`) or the plan from a generation (`cob.plan`) for the texts in the editor. */
  async trial<T>(command: "cob.solve" | "cob.plan", from: number): Promise<T> {
    if (!this.language || !this.current) throw new Error("the language server has not started");
    return this.language.command<T>(command, this.current.uri, from);
  }

  /** Puts the cursor at the beginning of a line, counted from 0. */
  goTo(line: number): void {
    const at = offset(this.view.state.doc, { line, character: 0 });
    this.view.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: "center" }) });
    this.view.focus();
  }

  /** Formats the file as `cobgen fmt` does. */
  async format(): Promise<void> {
    const file = this.current;
    const before = this.view.state.doc;
    const text = file && (await this.language?.formatted(file.uri));
    if (!text || this.current !== file || this.view.state.doc !== before) return;
    const line = before.lineAt(this.view.state.selection.main.head).number - 1;
    this.view.dispatch({ changes: { from: 0, to: before.length, insert: text } });
    this.goTo(line);
  }

  destroy(): void {
    this.language?.stop();
    this.view.destroy();
  }

  private stateOf(name: string, doc: string): EditorState {
    const save = () => {
      this.options.save();
      return true;
    };
    return EditorState.create({
      doc,
      extensions: [
        lineNumbers(),
        foldGutter(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        highlightActiveLine(),
        highlightSelectionMatches(),
        search({ top: true }),
        yaml(),
        syntaxHighlighting(colours),
        lintGutter(),
        autocompletion({ override: [(context) => this.complete(context)] }),
        hoverTooltip((view, at) => this.hover(view, at)),
        keymap.of([
          { key: "Mod-s", run: save, preventDefault: true },
          { key: "F12", run: () => (void this.definition(), true) },
          ...completionKeymap,
          ...searchKeymap,
          ...historyKeymap,
          ...foldKeymap,
          ...lintKeymap,
          ...defaultKeymap,
          // Tab indents; Escape and then Tab leaves the editor.
          indentWithTab,
        ]),
        EditorState.tabSize.of(2),
        EditorView.contentAttributes.of({ "aria-label": `Text of ${name}`, spellcheck: "false", tabindex: "0" }),
        EditorView.domEventHandlers({ beforeinput: replaceSelection }),
        EditorView.updateListener.of((update) => {
          if (!update.docChanged || !this.current) return;
          const text = update.state.doc.toString();
          this.language?.text(this.current.uri, text);
          this.options.changed(this.current.name, text);
        }),
        theme,
      ],
    });
  }

  private mark(): void {
    const { doc } = this.view.state;
    const findings = this.findings.get(this.current?.name ?? "") ?? [];
    const marks = findings.map((finding): Diagnostic => {
      const from = offset(doc, finding.range.start);
      const to = Math.max(from, offset(doc, finding.range.end));
      return { from, to, severity: SEVERITIES[finding.severity ?? 1] ?? "error", message: finding.message };
    });
    this.view.dispatch(setDiagnostics(this.view.state, marks));
  }

  private async complete(context: CompletionContext): Promise<CompletionResult | null> {
    const word = context.matchBefore(/[\w./-]*/);
    if (!this.current || !this.language || (!context.explicit && (!word || word.from === word.to))) return null;
    const items = await this.language.completions(this.current.uri, placeOf(context.state.doc, context.pos)).catch(() => null);
    if (!items || items.length === 0) return null;
    const options = items.map((item) => ({
      label: item.label,
      apply: item.insertText ?? item.label,
      type: KINDS[item.kind ?? 0] ?? "text",
      ...(item.documentation ? { info: item.documentation } : {}),
    }));
    return { from: word?.from ?? context.pos, options, validFor: /^[\w./-]*$/ };
  }

  private async hover(view: EditorView, at: number) {
    if (!this.current || !this.language) return null;
    const found = await this.language.hover(this.current.uri, placeOf(view.state.doc, at)).catch(() => null);
    if (!found) return null;
    const text = found.contents.value.replaceAll("**", "");
    return {
      pos: at,
      above: true,
      create: () => {
        const dom = document.createElement("div");
        dom.textContent = text;
        return { dom };
      },
    };
  }

  private async definition(): Promise<void> {
    const { state } = this.view;
    if (!this.current || !this.language) return;
    const places = await this.language.definition(this.current.uri, placeOf(state.doc, state.selection.main.head)).catch(() => null);
    const place = places?.[0];
    if (!place) return;
    this.options.show(nameOf(place.uri), place.range.start.line);
  }
}
