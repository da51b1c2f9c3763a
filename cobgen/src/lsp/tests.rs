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
        let folder = tempfile::tempdir().expect("a folder");
        let depot = folder.path().join("depot");
        let server = thread::spawn(move || serve(&theirs, None, Some(depot)));
        let mut editor = Self { connection, server, folder, requests: 0 };
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

/// Applies the edits of an answer to a text.
fn edited(text: &str, edits: &Json) -> String {
    let mut lines: Vec<Vec<u16>> = text.split_inclusive('\n').map(|line| line.encode_utf16().collect()).collect();
    let mut edits: Vec<&Json> = edits.as_array().into_iter().flatten().collect();
    let number = |edit: &Json, end: &str, key: &str| edit["range"][end][key].as_u64().expect("a number") as usize;
    edits.sort_by_key(|edit| std::cmp::Reverse((number(edit, "start", "line"), number(edit, "start", "character"))));
    for edit in edits {
        let (from, to) = (number(edit, "start", "character"), number(edit, "end", "character"));
        let new: Vec<u16> = edit["newText"].as_str().expect("a text").encode_utf16().collect();
        lines[number(edit, "start", "line")].splice(from..to, new);
    }
    lines.iter().map(|line| String::from_utf16(line).expect("a text")).collect()
}

/// A model with a reference of each form.
const NAMED: &str = "\
security: loopback-only
hosts:
  n1: {address: 'tcp://127.0.0.1:1'} # n1 is the first; db too
  n2: {address: 'tcp://127.0.0.1:2', vars: {kind: n1, place: n1}}
variables:
  all: {n1: 7, db: 8}
  host: {n1: {port: 80}}
  service: {db: {size: 1}}
budgets: {one: {at_most: 1, host: n1}}
secrets: {pw: {env: HOME}}
services:
  db:
    ready: [server]
    cobs:
      config: {kind: line, content: {path: /etc/db, line: 'é db {{ facts.n1.cpus }} n1/db'}}
      server:
        kind: noop
        budget: one
        restarts_on: [config]
  app:
    requires: [db]
    cobs:
      server:
        kind: noop
        after: [db/config, 'n1/db/server', {cob: db/server, on: all}]
      text:
        kind: file-tree
        requires:
          - server
          - cob: db
            on: host n1
        content:
          files:
            /etc/app:
              content: |
                requires: [db]
                {{ on('db') | map(attribute='name') | join(' ') }} n1
clusters:
  c:
    services:
      db: [n1]
      app: [n2]
cobs:
  n1/x: {kind: noop}
  n2/y: {kind: noop, requires: [n1/x, n1/db/server, z]}
  n2/z:
    kind: noop
    locks: [{state: up, needs: [n1/x@up]}]
";
const FACTS: &str = "facts:\n  n1: {cpus: 8}\n  n2: {cpus: 8}\n";

impl Editor {
    /// An editor with the model [`NAMED`] in two files.
    fn with_names() -> Self {
        let editor = Self::start();
        for (name, text) in [("model.yaml", NAMED), ("facts.yaml", FACTS)] {
            fs::write(editor.folder.path().join(name), text).expect("written");
            editor.open(name, text);
        }
        editor
    }

    fn rename(&mut self, part: &str, new: &str) -> Result<[String; 2], String> {
        let mut params = self.after("model.yaml", NAMED, part);
        params["newName"] = json!(new);
        let response = self.respond("textDocument/rename", params);
        if let Some(error) = response.error {
            return Err(error.message);
        }
        let answer = response.result.unwrap_or_default();
        let of = |name: &str, text| edited(text, &answer["changes"][self.uri(name)]);
        Ok([of("model.yaml", NAMED), of("facts.yaml", FACTS)])
    }
}

#[test]
fn a_model_with_every_name_is_right() {
    let editor = Editor::start();
    let text = format!("{NAMED}{FACTS}");
    editor.open("model.yaml", &text);
    let findings = editor.findings("model.yaml");
    let errors: Vec<&Json> = findings.iter().filter(|finding| finding["severity"] == 1).collect();
    assert!(errors.is_empty(), "{errors:?}");
    editor.end();
}

#[test]
fn a_host_is_renamed_in_all_files_and_texts_keep_its_name() {
    let mut editor = Editor::with_names();
    let [model, facts] = editor.rename("\n  n1", "first").expect("renamed");
    let expected = NAMED
        .replace("\n  n1: {address", "\n  first: {address")
        .replace("host: {n1: {port", "host: {first: {port")
        .replace("at_most: 1, host: n1", "at_most: 1, host: first")
        .replace("facts.n1.cpus", "facts.first.cpus")
        .replace("'n1/db/server'", "'first/db/server'")
        .replace("on: host n1", "on: host first")
        .replace("db: [n1]", "db: [first]")
        .replace("  n1/x: {kind", "  first/x: {kind")
        .replace("[n1/x, n1/db/server, z]", "[first/x, first/db/server, z]")
        .replace("[n1/x@up]", "[first/x@up]");
    assert_eq!(model, expected);
    assert_eq!(facts, FACTS.replace("  n1:", "  first:"));
    // The same from a reference.
    assert_eq!(editor.rename("on: host n1", "first").expect("renamed")[0], expected);
    editor.end();
}

#[test]
fn a_service_and_its_change_objects_are_renamed() {
    let mut editor = Editor::with_names();
    let [model, _] = editor.rename("\n  db", "data").expect("renamed");
    let expected = NAMED
        .replace("service: {db: {size", "service: {data: {size")
        .replace("\n  db:\n", "\n  data:\n")
        .replace("app:\n    requires: [db]", "app:\n    requires: [data]")
        .replace("[db/config, 'n1/db/server', {cob: db/server,", "[data/config, 'n1/data/server', {cob: data/server,")
        .replace("- cob: db\n", "- cob: data\n")
        .replace("on('db')", "on('data')")
        .replace("      db: [n1]", "      data: [n1]")
        .replace("[n1/x, n1/db/server, z]", "[n1/x, n1/data/server, z]");
    assert_eq!(model, expected);
    let [model, _] = editor.rename("ready: [ser", "main").expect("renamed");
    let expected = NAMED
        .replace("ready: [server]", "ready: [main]")
        .replacen("      server:\n", "      main:\n", 1)
        .replace("'n1/db/server', {cob: db/server,", "'n1/db/main', {cob: db/main,")
        .replace("[n1/x, n1/db/server, z]", "[n1/x, n1/db/main, z]");
    assert_eq!(model, expected, "the object of the same name in another service stays");
    editor.end();
}

#[test]
fn other_names_are_renamed() {
    let mut editor = Editor::with_names();
    for (part, new, changes) in [
        ("\nclusters:\n  c", "shop", &[("\n  c:\n", "\n  shop:\n")][..]),
        ("budget: o", "single", &[("budgets: {one", "budgets: {single"), ("budget: one", "budget: single")]),
        ("requires: [n1/x", "w", &[("n1/x: {kind", "n1/w: {kind"), ("[n1/x,", "[n1/w,"), ("[n1/x@", "[n1/w@")]),
        ("n1/db/server, z", "w", &[("n1/db/server, z]", "n1/db/server, w]"), ("  n2/z:", "  n2/w:")]),
        ("secrets: {p", "key", &[("secrets: {pw", "secrets: {key")]),
    ] {
        let expected = changes.iter().fold(NAMED.to_owned(), |text, (old, new)| text.replace(old, new));
        assert_eq!(editor.rename(part, new).map(|[model, _]| model), Ok(expected), "{part}");
    }
    editor.end();
}

#[test]
fn a_rename_that_can_not_be_made_says_why() {
    let mut editor = Editor::with_names();
    for (part, new, why) in [
        ("\n  n1", "n2", "the host `n2` exists already"),
        ("\n  n1", "a/b", "\"a/b\" is not a name"),
        ("\n  n1", "", "\"\" is not a name"),
        ("\n  n1", "7", "`7` is not a text in YAML"),
        ("\n  db", "app", "the service `app` exists already"),
        ("ready: [ser", "config", "the change object of service `db` `config` exists already"),
        ("kind: no", "other", "the kind `noop` has no definition in this model"),
        ("db: {si", "n1", "the variable `n1` exists already"),
        ("db: {si", "a-b", "a template can't read a variable \"a-b\""),
        ("db: {si", "host", "a template can't read a variable \"host\""),
        ("content: {pa", "other", "`path` is not a name that can be renamed"),
        ("security: ", "other", "`loopback-only` is not a name that can be renamed"),
    ] {
        let told = editor.rename(part, new).expect_err(part);
        assert!(told.starts_with(why), "{part}: {told}");
    }
    // An anchor hides a reference from the rename, but not from the check of the renamed model.
    let hidden = "x-needs: &needs [web]\nhosts: {n1: {address: 'tcp://127.0.0.1:1'}}\nsecurity: loopback-only\nservices:\n  \
                  web: {cobs: {a: {kind: noop}}}\n  app: {requires: *needs, cobs: {b: {kind: noop}}}\nclusters: {c: {services: \
                  {web: [n1], app: [n1]}}}\n";
    editor.open("alone/model.yaml", hidden);
    let mut params = editor.after("alone/model.yaml", hidden, "\n  we");
    params["newName"] = json!("site");
    let response = editor.respond("textDocument/rename", params);
    let told = response.error.expect("refused").message;
    assert!(told.starts_with("the renamed model would be wrong") && told.contains("web"), "{told}");
    editor.end();
}

#[test]
fn an_editor_learns_the_place_of_a_name_before_it_asks_for_another() {
    let mut editor = Editor::with_names();
    let place = editor.after("model.yaml", NAMED, "'n1/db/ser");
    let range = editor.ask("textDocument/prepareRename", place.clone());
    let line = &place["position"]["line"];
    assert_eq!(range, json!({"start": {"line": line, "character": 34}, "end": {"line": line, "character": 40}}));
    let place = editor.after("model.yaml", NAMED, "secur");
    let refused = editor.respond("textDocument/prepareRename", place);
    assert!(refused.error.is_some_and(|error| error.message.contains("is not a name that can be renamed")));
    editor.end();
}

/// A model with a variable in each form.
const VARIABLES: &str = "\
security: loopback-only
hosts:
  n1: {address: 'tcp://127.0.0.1:1', labels: {role: app}, vars: {port: 1, disks: [sda, sdb]}}
variables:
  all: {port: 80, user: port}
  label:
    role=app:
      port: 8080 # the port
  service: {web: {port: 5432}}
services:
  web:
    cobs:
      'disk-{{ d }}':
        kind: line
        for: {d: host.vars.disks}
        when: user != 'd' and port > 1
        content: {path: '/etc/{{ d }}', line: 'port {{ port }} {{ host.vars.port }}'} # {{ port }}
      'port-{{ port }}': {kind: line, for: {port: [7, 8]}, content: {path: '/etc/{{ port }}', line: x}}
      text:
        kind: file-tree
        content:
          files:
            /etc/web:
              content: |
                port: {{ port | default(port) }} # {{ 'port' }}
                {% for h in on('web') if port %}{{ h.vars['port'] }} {{ h.port is defined }}{% endfor %}
            /etc/other:
              content: |
                {% set port = 1 -%}
                {{ port }} {{ host.vars.port }}
clusters:
  c: {services: {web: [n1]}}
";

#[test]
fn a_model_with_every_variable_is_right() {
    let editor = Editor::start();
    editor.open("model.yaml", VARIABLES);
    let findings = editor.findings("model.yaml");
    assert!(findings.iter().all(|finding| finding["severity"] != 1), "{findings:?}");
    editor.end();
}

#[test]
fn a_variable_is_renamed_in_all_groups_templates_and_expressions() {
    let mut editor = Editor::start();
    editor.open("model.yaml", VARIABLES);
    let expected = VARIABLES
        .replace("vars: {port: 1", "vars: {listen: 1")
        .replace("all: {port: 80", "all: {listen: 80")
        .replace("      port: 8080", "      listen: 8080")
        .replace("web: {port: 5432", "web: {listen: 5432")
        .replace("and port > 1", "and listen > 1")
        .replace("'port {{ port }} {{ host.vars.port }}'", "'port {{ listen }} {{ host.vars.listen }}'")
        .replace("port: {{ port | default(port) }}", "port: {{ listen | default(listen) }}")
        .replace("if port %}{{ h.vars['port'] }}", "if listen %}{{ h.vars['listen'] }}")
        .replace("{{ port }} {{ host.vars.port }}\nclusters", "{{ port }} {{ host.vars.listen }}\nclusters");
    for part in ["all: {po", "role=app:\n      por", "and po", "line: 'port {{ po", "h.vars['po", "vars: {po"] {
        let mut params = editor.after("model.yaml", VARIABLES, part);
        params["newName"] = json!("listen");
        let answer = editor.ask("textDocument/rename", params);
        assert_eq!(edited(VARIABLES, &answer["changes"][editor.uri("model.yaml")]), expected, "{part}");
    }
    editor.end();
}

#[test]
fn a_variable_of_a_loop_is_renamed_in_its_change_object_alone() {
    let mut editor = Editor::start();
    editor.open("model.yaml", VARIABLES);
    for (part, new, expected) in [
        (
            "'disk-{{ d",
            "disk",
            VARIABLES
                .replace("'disk-{{ d }}'", "'disk-{{ disk }}'")
                .replace("for: {d:", "for: {disk:")
                .replace("'/etc/{{ d }}'", "'/etc/{{ disk }}'"),
        ),
        (
            "for: {po",
            "p",
            VARIABLES
                .replace("'port-{{ port }}'", "'port-{{ p }}'")
                .replace("for: {port:", "for: {p:")
                .replace("'/etc/{{ port }}'", "'/etc/{{ p }}'"),
        ),
    ] {
        let mut params = editor.after("model.yaml", VARIABLES, part);
        params["newName"] = json!(new);
        let answer = editor.ask("textDocument/rename", params);
        assert_eq!(edited(VARIABLES, &answer["changes"][editor.uri("model.yaml")]), expected, "{part}");
    }
    editor.end();
}

#[test]
fn a_variable_that_is_read_in_another_way_is_not_renamed() {
    let mut editor = Editor::start();
    let text = VARIABLES.replace("line: x}", "line: '{{ host.vars | tojson }}'}");
    editor.open("model.yaml", &text);
    let mut params = editor.after("model.yaml", &text, "all: {po");
    params["newName"] = json!("listen");
    let told = editor.respond("textDocument/rename", params).error.expect("refused").message;
    assert!(told.starts_with("the renamed model would give hosts other contents"), "{told}");
    editor.end();
}

#[test]
fn definitions_and_references_of_names_are_found() {
    let mut editor = Editor::start();
    editor.open("model.yaml", VARIABLES);
    let lines = |found: &Json| -> Vec<u64> {
        let places = found.as_array().into_iter().flatten();
        places.map(|place| place["range"]["start"]["line"].as_u64().expect("a line") + 1).collect()
    };
    let place = editor.after("model.yaml", VARIABLES, "line: 'port {{ po");
    let found = editor.ask("textDocument/definition", place.clone());
    assert_eq!(lines(&found), [3, 5, 8, 9]);
    assert_eq!(found[1]["range"], json!({"start": {"line": 4, "character": 8}, "end": {"line": 4, "character": 12}}));
    let mut all = place;
    all["context"] = json!({"includeDeclaration": true});
    let found = editor.ask("textDocument/references", all.clone());
    assert_eq!(lines(&found), [3, 5, 8, 9, 16, 17, 17, 25, 25, 26, 26, 30]);
    all["context"] = json!({"includeDeclaration": false});
    let found = editor.ask("textDocument/references", all);
    assert_eq!(lines(&found), [16, 17, 17, 25, 25, 26, 26, 30]);
    let mut host = editor.after("model.yaml", VARIABLES, "\n  n1");
    host["context"] = json!({"includeDeclaration": false});
    assert_eq!(lines(&editor.ask("textDocument/references", host)), [32]);
    let mut nothing = editor.after("model.yaml", VARIABLES, "secur");
    nothing["context"] = json!({"includeDeclaration": true});
    assert_eq!(editor.ask("textDocument/references", nothing), json!([]));
    editor.end();
}

#[test]
fn the_layout_and_the_plan_of_an_unsaved_text_are_found() {
    let mut editor = Editor::start();
    let models = editor.folder.path().join("models");
    fs::create_dir(&models).expect("made");
    let (hosts, services) = MODEL.split_at(MODEL.find("services:").expect("there"));
    fs::write(models.join("hosts.yaml"), hosts).expect("written");
    fs::write(models.join("services.yaml"), services).expect("written");
    crate::publish(&models, &editor.folder.path().join("depot"), "").expect("published");
    let name = "models/services.yaml";
    editor.open(name, &services.replace("content: hello", "content: bye"));
    let ask = |editor: &mut Editor, command: &str, name: &str| {
        let argument = json!({"uri": editor.uri(name), "from": 1});
        editor.respond("workspace/executeCommand", json!({"command": command, "arguments": [argument]}))
    };
    let plan = ask(&mut editor, "cob.plan", name).result.expect("a plan");
    assert_eq!((&plan["from"], &plan["to"]), (&json!(1), &json!(2)), "{plan}");
    let changed: Vec<&String> = plan["changes"]["changed"].as_object().expect("changes").keys().collect();
    assert!(changed.contains(&&"n1/web/conf".to_owned()), "{plan}");
    // A file that its editor has not saved yet counts, too.
    let new = "models/more.yaml";
    editor.open(new, "cobs:\n  n1/new: {kind: noop}\n");
    let plan = ask(&mut editor, "cob.plan", name).result.expect("a plan");
    assert!(plan["changes"]["added"]["n1/new"].is_string(), "{plan}");
    editor.open(new, "cobs: [\n");
    let wrong = ask(&mut editor, "cob.plan", name).error.expect("refused");
    assert_eq!(wrong.message, "the model has errors");
    editor.tell("textDocument/didClose", json!({"textDocument": {"uri": editor.uri(new)}}));
    let layout = ask(&mut editor, "cob.solve", name).result.expect("a layout");
    assert_eq!(
        (&layout["clusters"][0]["name"], &layout["clusters"][0]["nodes"][0]["name"]),
        (&json!("c"), &json!("n1"))
    );
    let unknown = ask(&mut editor, "cob.fly", name).error.expect("refused");
    assert!(unknown.message.contains("has no command"), "{unknown:?}");
    editor.end();
}
