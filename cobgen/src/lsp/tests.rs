//! An editor and the server, connected in memory.

use std::fs;
use std::thread::{self, JoinHandle};

use lsp_server::{Connection, Message, Notification, Request, Response};
use serde_json::{Value as Json, json};

use super::buffers::{path_of, uri_of};
use super::{Ended, serve};

const MODEL: &str = "\
hosts:
  n1: {}
services:
  web:
    cobs:
      conf: {kind: file-tree, content: {files: {/etc/web: {content: hello}}}}
      app:
        kind: noop
        requires: [conf]
clusters:
  c: {services: {web: [n1]}}
";

struct Editor {
    connection: Connection,
    server: JoinHandle<Result<(), Ended>>,
    folder: tempfile::TempDir,
    requests: i32,
}

impl Editor {
    fn start() -> Self {
        let (connection, theirs) = Connection::memory();
        let server = thread::spawn(move || serve(&theirs, None));
        let mut editor = Self { connection, server, folder: tempfile::tempdir().expect("a folder"), requests: 0 };
        let answer = editor.ask("initialize", json!({"capabilities": {}}));
        assert_eq!(answer["capabilities"]["hoverProvider"], true);
        editor.tell("initialized", json!({}));
        editor
    }

    fn tell(&self, method: &str, params: Json) {
        let message = Message::Notification(Notification { method: method.to_owned(), params });
        self.connection.sender.send(message).expect("the server runs");
    }

    fn respond(&mut self, method: &str, params: Json) -> Response {
        self.requests += 1;
        let id = self.requests.into();
        let request = Request { id, method: method.to_owned(), params };
        self.connection.sender.send(Message::Request(request)).expect("the server runs");
        loop {
            if let Message::Response(response) = self.connection.receiver.recv().expect("an answer") {
                return response;
            }
        }
    }

    fn ask(&mut self, method: &str, params: Json) -> Json {
        let response = self.respond(method, params);
        assert!(response.error.is_none(), "{response:?}");
        response.result.unwrap_or_default()
    }

    fn uri(&self, name: &str) -> String {
        uri_of(&self.folder.path().join(name)).expect("an address").as_str().to_owned()
    }

    fn open(&self, name: &str, text: &str) {
        let document = json!({"uri": self.uri(name), "languageId": "yaml", "version": 1, "text": text});
        self.tell("textDocument/didOpen", json!({"textDocument": document}));
    }

    fn change(&self, name: &str, text: &str) {
        let document = json!({"uri": self.uri(name), "version": 2});
        self.tell("textDocument/didChange", json!({"textDocument": document, "contentChanges": [{"text": text}]}));
    }

    /// The next findings in a file.
    fn findings(&self, name: &str) -> Vec<Json> {
        loop {
            if let Message::Notification(told) = self.connection.receiver.recv().expect("findings")
                && told.params["uri"] == self.uri(name)
            {
                return told.params["diagnostics"].as_array().expect("a list").clone();
            }
        }
    }

    /// The place of the end of a text in the model.
    fn after(&self, name: &str, text: &str, part: &str) -> Json {
        let before = &text[..text.find(part).expect("it is there") + part.len()];
        let line = before.matches('\n').count();
        let character = before.rsplit('\n').next().expect("a line").encode_utf16().count();
        json!({"textDocument": {"uri": self.uri(name)}, "position": {"line": line, "character": character}})
    }

    fn labels(&mut self, name: &str, text: &str, part: &str) -> Vec<String> {
        let at = self.after(name, text, part);
        let items = self.ask("textDocument/completion", at);
        let labels = items.as_array().expect("a list").iter().map(|item| item["label"].as_str().expect("a label"));
        labels.map(str::to_owned).collect()
    }

    fn end(mut self) {
        self.ask("shutdown", json!(null));
        self.tell("exit", json!(null));
        self.server.join().expect("no panic").expect("a good end");
    }
}

#[test]
fn faults_are_shown_while_the_text_changes_and_go_when_it_is_mended() {
    let editor = Editor::start();
    let name = "model ü.yaml";
    // The text on disk does not count.
    fs::write(editor.folder.path().join(name), "nothing: here\n").expect("written");
    editor.open(name, MODEL);
    assert_eq!(editor.findings(name), Vec::<Json>::new());
    editor.change(name, &MODEL.replace("kind: noop", "kind: nop"));
    let findings = editor.findings(name);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(
        findings[0]["range"],
        json!({"start": {"line": 7, "character": 14}, "end": {"line": 7, "character": 17}})
    );
    assert!(findings[0]["message"].as_str().is_some_and(|text| text.contains("nop")), "{findings:?}");
    assert_eq!((&findings[0]["source"], &findings[0]["severity"]), (&json!("cob"), &json!(1)));
    editor.change(name, "hosts: {\n");
    assert!(!editor.findings(name).is_empty());
    editor.change(name, MODEL);
    assert_eq!(editor.findings(name), Vec::<Json>::new());
    editor.end();
}

#[test]
fn a_folder_of_parts_is_a_model() {
    let editor = Editor::start();
    let (hosts, services) = MODEL.split_at(MODEL.find("services:").expect("there"));
    fs::write(editor.folder.path().join("hosts.yaml"), hosts).expect("written");
    editor.open("services.yaml", services);
    // Not on disk yet: alone, it has no hosts.
    assert!(!editor.findings("services.yaml").is_empty());
    fs::write(editor.folder.path().join("services.yaml"), services).expect("written");
    editor.change("services.yaml", &services.replace("[conf]", "[config]"));
    let findings = editor.findings("services.yaml");
    assert!(findings[0]["message"].as_str().is_some_and(|text| text.contains("config")), "{findings:?}");
    editor.change("services.yaml", services);
    assert_eq!(editor.findings("services.yaml"), Vec::<Json>::new());
    editor.end();
}

#[test]
fn completions_come_from_the_schema_and_the_names_of_the_model() {
    let mut editor = Editor::start();
    let text = MODEL.replace("kind: noop", "kind: \n        pre").replace("[conf]", "[");
    editor.open("model.yaml", &text);
    let kinds = editor.labels("model.yaml", &text, "app:\n        kind: ");
    assert!(kinds.contains(&"file-tree".to_owned()) && kinds.contains(&"firewall".to_owned()), "{kinds:?}");
    let keys = editor.labels("model.yaml", &text, "\n        pre");
    assert!(keys.contains(&"preferred".to_owned()) && keys.contains(&"content".to_owned()), "{keys:?}");
    assert!(!keys.contains(&"requires".to_owned()), "the object has it already: {keys:?}");
    let names = editor.labels("model.yaml", &text, "requires: [");
    assert!(names.contains(&"web/conf".to_owned()) && names.contains(&"web".to_owned()), "{names:?}");
    let text = "cobs:\n  n1/x:\n    kind: line\n    content:\n      \n";
    editor.change("model.yaml", text);
    let keys = editor.labels("model.yaml", text, "content:\n      ");
    assert!(keys.contains(&"path".to_owned()), "{keys:?}");
    editor.end();
}

#[test]
fn names_lead_to_their_definitions_and_keys_to_their_explanations() {
    let mut editor = Editor::start();
    editor.open("model.yaml", MODEL);
    let at = editor.after("model.yaml", MODEL, "[conf");
    let found = editor.ask("textDocument/definition", at);
    assert_eq!(found[0]["range"]["start"], json!({"line": 5, "character": 6}), "{found}");
    let at = editor.after("model.yaml", MODEL, "requi");
    let about = editor.ask("textDocument/hover", at);
    assert!(about["contents"]["value"].as_str().is_some_and(|text| text.starts_with("**requires**")), "{about}");
    let at = editor.after("model.yaml", MODEL, "kind: file-tr");
    let about = editor.ask("textDocument/hover", at);
    assert!(about["contents"]["value"].as_str().is_some_and(|text| text.contains("States:")), "{about}");
    let uri = editor.uri("model.yaml");
    let symbols = editor.ask("textDocument/documentSymbol", json!({"textDocument": {"uri": uri}}));
    let names: Vec<&str> = symbols.as_array().expect("a list").iter().filter_map(|s| s["name"].as_str()).collect();
    assert_eq!(names, ["hosts", "n1", "services", "web", "clusters", "c"]);
    editor.end();
}

#[test]
fn wrong_requests_get_errors_and_do_not_end_the_server() {
    let mut editor = Editor::start();
    let unknown = editor.respond("textDocument/foldingRange", json!({}));
    assert!(unknown.error.is_some_and(|error| error.message.contains("does not answer")));
    let wrong = editor.respond("textDocument/hover", json!({"textDocument": 7}));
    assert!(wrong.error.is_some());
    editor.tell(
        "textDocument/didChange",
        json!({"textDocument": {"uri": "untitled:1", "version": 1}, "contentChanges": []}),
    );
    let none = editor.ask("textDocument/hover", editor.after("gone.yaml", MODEL, "hosts"));
    assert_eq!(none, Json::Null);
    editor.end();
}

#[test]
fn addresses_and_paths_are_the_same_files() {
    for path in ["/a b/ü%/x.yaml", "/", "/a#b?c"] {
        let uri = uri_of(path.as_ref()).expect("an address");
        assert_eq!(path_of(&uri), Some(path.into()), "{}", uri.as_str());
    }
    assert_eq!(path_of(&"https://host/x".parse().expect("an address")), None);
}

#[test]
fn a_text_is_formatted_unless_it_is_wrong() {
    let mut editor = Editor::start();
    editor.open("m.yaml", "hosts:   {n1:   {}}   # first\n");
    let of = json!({"textDocument": {"uri": editor.uri("m.yaml")}, "options": {"tabSize": 2, "insertSpaces": true}});
    let edits = editor.ask("textDocument/formatting", of.clone());
    assert_eq!(edits[0]["newText"], "hosts: {n1: {}} # first\n");
    editor.change("m.yaml", "hosts: {n1: {}} # first\n");
    assert_eq!(editor.ask("textDocument/formatting", of.clone()), json!([]));
    editor.change("m.yaml", "hosts: {n1: [}\n");
    assert_eq!(editor.ask("textDocument/formatting", of), json!(null));
    editor.end();
}
