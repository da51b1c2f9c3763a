//! `cobgen lsp` as an editor starts it: a process with the protocol on its standard input and output.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

struct Editor {
    server: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Editor {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cobgen"));
        let mut server =
            command.args(["lsp", "--stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let (input, output) = (server.stdin.take().expect("piped"), server.stdout.take().expect("piped"));
        Self { server, input, output: BufReader::new(output) }
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        write!(self.input, "Content-Length: {}\r\n\r\n{text}", text.len()).expect("the server reads");
        self.input.flush().expect("the server reads");
    }

    fn receive(&mut self) -> Value {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).expect("a line"), 0, "the server has ended");
            match line.trim().split_once(": ") {
                Some(("Content-Length", value)) => length = value.parse().expect("a number"),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).expect("a message");
        serde_json::from_slice(&body).expect("JSON")
    }

    fn until(&mut self, is: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.receive();
            if is(&message) {
                return message;
            }
        }
    }
}

/// A model with this number of lines, at least.
fn long_model(lines: usize) -> String {
    let mut text = String::from("hosts:\n  n1: {}\ncobs:\n");
    for number in 0..lines / 5 {
        text.push_str(&format!(
            "  n1/line{number}:\n    kind: line\n    content:\n      path: /etc/x{number}\n      line: hello\n"
        ));
    }
    text
}

#[test]
fn an_editor_gets_findings_and_completions_and_ends_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let uri = format!("file://{}/model.yaml", folder.path().display());
    let mut editor = Editor::start();
    editor.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}));
    editor.until(|message| message["id"] == 1);
    editor.send(&json!({"jsonrpc": "2.0", "method": "initialized", "params": {}}));
    let text = long_model(5000).replacen("kind: line", "kind: lin", 1);
    let document = json!({"uri": uri, "languageId": "yaml", "version": 1, "text": text});
    editor.send(&json!({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": document}}));
    // An answer does not wait for the check.
    let place = json!({"textDocument": {"uri": uri}, "position": {"line": 4, "character": 13}});
    editor.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "textDocument/completion", "params": place}));
    let (mut found, mut items) = (None, None);
    while found.is_none() || items.is_none() {
        let message = editor.receive();
        if message["id"] == 2 {
            items = Some(message["result"].clone());
        } else {
            found = Some(message["params"]["diagnostics"].clone());
        }
    }
    let items = items.expect("an answer");
    assert!(items.as_array().is_some_and(|items| items.iter().any(|item| item["label"] == "line")), "{items}");
    let found = found.expect("findings");
    assert_eq!(found[0]["range"]["start"], json!({"line": 4, "character": 10}), "{found}");
    editor.send(&json!({"jsonrpc": "2.0", "id": 3, "method": "shutdown"}));
    editor.until(|message| message["id"] == 3);
    editor.send(&json!({"jsonrpc": "2.0", "method": "exit"}));
    assert!(editor.server.wait().expect("it ends").success());
}

#[test]
fn an_editor_follows_and_renames_a_variable_over_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let hosts = "security: loopback-only\nhosts: {n1: {address: 'tcp://127.0.0.1:1', vars: {port: 80}}}\n";
    let cobs = "cobs:\n  n1/a:\n    kind: line\n    content: {path: /etc/a, line: 'listen {{ port }}'}\n";
    for (name, text) in [("hosts.yaml", hosts), ("cobs.yaml", cobs)] {
        std::fs::write(folder.path().join(name), text).expect("written");
    }
    let uri = |name: &str| format!("file://{}/{name}", folder.path().display());
    let mut editor = Editor::start();
    editor.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}}));
    let answer = editor.until(|message| message["id"] == 1);
    assert_eq!(answer["result"]["capabilities"]["referencesProvider"], true);
    editor.send(&json!({"jsonrpc": "2.0", "method": "initialized", "params": {}}));
    // The file of the hosts is not open.
    let document = json!({"uri": uri("cobs.yaml"), "languageId": "yaml", "version": 1, "text": cobs});
    editor.send(&json!({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": document}}));
    let place = json!({"textDocument": {"uri": uri("cobs.yaml")}, "position": {"line": 3, "character": 47}});
    let mut ask = |id: i32, method: &str, more: Value| {
        let mut params = place.clone();
        for (key, value) in more.as_object().into_iter().flatten() {
            params[key] = value.clone();
        }
        editor.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        editor.until(|message| message["id"] == id)["result"].clone()
    };
    let found = ask(2, "textDocument/definition", json!({}));
    assert_eq!(
        (&found[0]["uri"], &found[0]["range"]["start"]["line"]),
        (&json!(uri("hosts.yaml")), &json!(1)),
        "{found}"
    );
    let found = ask(3, "textDocument/references", json!({"context": {"includeDeclaration": true}}));
    assert_eq!(found.as_array().map(Vec::len), Some(2), "{found}");
    let edits = ask(4, "textDocument/rename", json!({"newName": "listen_on"}));
    let changes = edits["changes"].as_object().expect("edits").clone();
    assert_eq!(changes.len(), 2, "{edits}");
    let edit = &edits["changes"][uri("cobs.yaml")][0];
    assert_eq!(edit["range"]["start"], json!({"line": 3, "character": 45}), "{edits}");
    assert_eq!(edit["newText"], "listen_on");
}

#[test]
fn a_broken_connection_ends_the_server_with_its_reason() {
    let Editor { mut server, input, output } = Editor::start();
    drop(input);
    drop(output);
    assert_eq!(server.wait().expect("it ends").code(), Some(1));
}
