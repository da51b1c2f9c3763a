// A client of `cobgen lsp`: the messages of the Language Server Protocol, over the server of the page.
import { eachLine } from "../lines";

/** Sends a request to the server of the page. */
export type Ask = (path: string, init?: RequestInit) => Promise<Response>;

export interface Place {
  line: number;
  character: number;
}

export interface Range {
  start: Place;
  end: Place;
}

/** A finding about a file. */
export interface Finding {
  range: Range;
  /** 1: error, 2: warning, 3: information, 4: hint. */
  severity?: number;
  code?: string | number;
  message: string;
}

export interface CompletionItem {
  label: string;
  kind?: number;
  insertText?: string;
  documentation?: string;
}

interface Received {
  editor?: number;
  id?: number;
  result?: unknown;
  error?: { message: string };
  method?: string;
  params?: { uri: string; diagnostics: Finding[] };
}

/** The language server of an open editor. */
export class Language {
  private readonly controller = new AbortController();
  private readonly waiting = new Map<number, { done: (value: unknown) => void; failed: (error: Error) => void }>();
  private readonly versions = new Map<string, number>();
  private last = 0;
  private editor = 0;
  /** Messages reach the server in the order in which they were sent. */
  private sent: Promise<unknown> = Promise.resolve();

  private constructor(
    private readonly ask: Ask,
    private readonly found: (uri: string, findings: Finding[]) => void,
    private readonly ended: (why: string) => void,
  ) {}

  /** Starts a language server. */
  static async start(ask: Ask, found: (uri: string, findings: Finding[]) => void, ended: (why: string) => void): Promise<Language> {
    const language = new Language(ask, found, ended);
    const response = await ask("/api/model/editor", { signal: language.controller.signal });
    await new Promise<void>((ready, failed) => {
      eachLine(response, (line) => language.take(JSON.parse(line) as Received, ready)).then(
        () => language.end("the language server has ended", failed),
        (error: unknown) => language.end(error instanceof Error ? error.message : String(error), failed),
      );
    });
    await language.request("initialize", { processId: null, rootUri: null, capabilities: {} });
    language.notify("initialized", {});
    return language;
  }

  /** Ends the language server. */
  stop(): void {
    this.controller.abort();
  }

  /** Tells the server the text of a file. */
  text(uri: string, text: string): void {
    const version = (this.versions.get(uri) ?? 0) + 1;
    this.versions.set(uri, version);
    if (version === 1) this.notify("textDocument/didOpen", { textDocument: { uri, languageId: "yaml", version, text } });
    else this.notify("textDocument/didChange", { textDocument: { uri, version }, contentChanges: [{ text }] });
  }

  /** The file is no longer open. */
  close(uri: string): void {
    if (this.versions.delete(uri)) this.notify("textDocument/didClose", { textDocument: { uri } });
  }

  /** Runs a command of the language server about the model of a file. */
  command<T>(command: string, uri: string, from: number): Promise<T> {
    return this.request("workspace/executeCommand", { command, arguments: [{ uri, from }] });
  }

  completions(uri: string, position: Place): Promise<CompletionItem[] | null> {
    return this.request("textDocument/completion", { textDocument: { uri }, position });
  }

  hover(uri: string, position: Place): Promise<{ contents: { value: string } } | null> {
    return this.request("textDocument/hover", { textDocument: { uri }, position });
  }

  definition(uri: string, position: Place): Promise<{ uri: string; range: Range }[] | null> {
    return this.request("textDocument/definition", { textDocument: { uri }, position });
  }

  /** The formatted text, or nothing if the text has errors. */
  async formatted(uri: string): Promise<string | undefined> {
    const options = { tabSize: 2, insertSpaces: true };
    const edits = await this.request<{ newText: string }[] | null>("textDocument/formatting", { textDocument: { uri }, options });
    return edits?.[0]?.newText;
  }

  private notify(method: string, params: unknown): void {
    void this.send({ jsonrpc: "2.0", method, params });
  }

  private request<T>(method: string, params: unknown): Promise<T> {
    const id = ++this.last;
    return new Promise<T>((done, failed) => {
      this.waiting.set(id, { done: done as (value: unknown) => void, failed });
      this.send({ jsonrpc: "2.0", id, method, params }).catch(failed);
    });
  }

  private send(message: unknown): Promise<unknown> {
    const init = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(message) };
    const next = this.sent.then(() => this.ask(`/api/model/editor/${this.editor}`, init));
    this.sent = next.catch(() => undefined);
    return next;
  }

  private take(message: Received, ready: () => void): void {
    if (message.editor !== undefined) {
      this.editor = message.editor;
      ready();
    } else if (message.id !== undefined) {
      const waiting = this.waiting.get(message.id);
      this.waiting.delete(message.id);
      if (message.error) waiting?.failed(new Error(message.error.message));
      else waiting?.done(message.result);
    } else if (message.method === "textDocument/publishDiagnostics" && message.params) {
      this.found(message.params.uri, message.params.diagnostics);
    }
  }

  private end(why: string, failed: (error: Error) => void): void {
    for (const { failed } of this.waiting.values()) failed(new Error(why));
    this.waiting.clear();
    failed(new Error(why));
    if (!this.controller.signal.aborted) this.ended(why);
  }
}
