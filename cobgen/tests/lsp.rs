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
fn a_broken_connection_ends_the_server_with_its_reason() {
    let Editor { mut server, input, output } = Editor::start();
    drop(input);
    drop(output);
    assert_eq!(server.wait().expect("it ends").code(), Some(1));
}
