//! A provider of machines with faults: it creates real machines, as the provider `process` of the hub does, but is slow,
//! loses or garbles its answer, ignores tokens, or hangs, as a file says.
//!
//! The setting `faults` of the provider names the file; without the file, the provider is honest. Each machine has an
//! inner token at the inner provider. The folder `odd` of the provider's state holds a file for each machine, with the
//! token of the hub: the label.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

/// What goes wrong, each in one of a thousand calls.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// The call ends without an answer, after its work is done.
    pub lose: u64,
    /// The call ends without an answer before its work begins.
    pub fail: u64,
    /// The answer is no JSON.
    pub garbage: u64,
    /// The answer has more than 100 MB.
    pub huge: u64,
    /// The call does its work and never ends.
    pub hang: u64,
    /// The call is refused for ever.
    pub refuse: u64,
    /// The call takes up to 300 ms longer, before and after its work.
    pub slow: u64,
    /// Whether each creation makes a new machine, whatever the token says.
    pub ignores_tokens: bool,
    /// Whether the list is empty.
    pub lists_nothing: bool,
    /// Only calls of this action have faults.
    pub action: Option<String>,
}

/// The folder of labels in the state of the provider.
pub const LABELS: &str = "odd";

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    let file = fs::File::open("/dev/urandom");
    file.and_then(|mut file| file.read_exact(&mut bytes)).expect("random numbers");
    bytes
}

fn happens(permille: u64) -> bool {
    u64::from(u16::from_le_bytes([random()[0], random()[1]])) % 1000 < permille
}

fn pause(faults: &Faults) {
    if happens(faults.slow) {
        // Slow calls are the fault under test.
        std::thread::sleep(Duration::from_millis(u64::from(random()[0]) * 300 / 256));
    }
}

/// Performs the action in the first argument. Returns the exit status.
///
/// # Panics
/// If a file can't be read or written.
#[must_use]
pub fn run() -> u8 {
    let action = std::env::args().nth(1).unwrap_or_default();
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).expect("a request");
    let request: Value = serde_json::from_str(&text).expect("a request");
    let faults = request["settings"]["faults"].as_str().and_then(|file| fs::read_to_string(file).ok());
    let faults: Faults = faults.map(|text| serde_json::from_str(&text).expect("faults")).unwrap_or_default();
    let concerned = faults.action.as_ref().is_none_or(|only| *only == action);
    let faults = if concerned { faults } else { Faults::default() };
    pause(&faults);
    if happens(faults.fail) {
        return 9;
    }
    if happens(faults.refuse) {
        return say(&json!({ "error": "the provider refuses" }).to_string(), 1);
    }
    let answer = Yard::of(&request).perform(&action, &request, &faults);
    pause(&faults);
    if happens(faults.hang) {
        std::thread::sleep(Duration::from_secs(3600));
    }
    if happens(faults.lose) {
        return 7;
    }
    if happens(faults.garbage) {
        return say("{\"id\": tr", 0);
    }
    if happens(faults.huge) {
        let line = "x".repeat(1 << 20);
        return (0..100).fold(0, |_, _| say(&line, 0));
    }
    match answer {
        Ok(answer) => say(&answer.to_string(), 0),
        Err(refusal) => say(&refusal.to_string(), 1),
    }
}

/// Writes a text to standard output. Returns the status, or another if nobody reads it.
fn say(text: &str, status: u8) -> u8 {
    let mut out = std::io::stdout();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_ok() { status } else { 8 }
}

/// The machines.
struct Yard {
    labels: PathBuf,
    program: PathBuf,
}

impl Yard {
    fn of(request: &Value) -> Self {
        let state = Path::new(request["state"].as_str().expect("a folder"));
        let labels = state.join(LABELS);
        fs::create_dir_all(&labels).expect("a folder");
        let program = std::env::current_exe().expect("a program").with_file_name("cobhub");
        Self { labels, program }
    }

    fn perform(&self, action: &str, request: &Value, faults: &Faults) -> Result<Value, Value> {
        let label = request["machine"]["token"].as_str().unwrap_or_default();
        match action {
            "create" => {
                let known = self.of_label(label).into_iter().next().filter(|_| !faults.ignores_tokens);
                let token = known.unwrap_or_else(|| random().iter().map(|byte| format!("{byte:02x}")).collect());
                fs::write(self.labels.join(&token), label).expect("written");
                self.inner(action, request, &token)
            }
            "confirm" => {
                let token = request["machine"]["id"].as_str().map(str::to_owned);
                let token = token.or_else(|| self.of_label(label).into_iter().next()).unwrap_or_default();
                self.inner(action, request, &token)
            }
            "delete" => {
                let token = request["machine"]["id"].as_str().map(str::to_owned);
                let all = token.map_or_else(|| self.of_label(label), |token| vec![token]);
                for token in all {
                    self.inner(action, request, &token)?;
                    let _ = fs::remove_file(self.labels.join(&token));
                }
                Ok(json!({}))
            }
            _ if faults.lists_nothing => Ok(json!({ "machines": [] })),
            _ => {
                let labels = self.all();
                let mut list = self.inner(action, request, "")?;
                for machine in list["machines"].as_array_mut().into_iter().flatten() {
                    let label = machine["token"].as_str().and_then(|token| labels.get(token)).cloned();
                    machine["token"] = json!(label.unwrap_or_default());
                }
                Ok(list)
            }
        }
    }

    /// The labels, by the inner tokens.
    fn all(&self) -> BTreeMap<String, String> {
        let entries = fs::read_dir(&self.labels).expect("a list").flatten();
        let one =
            |entry: fs::DirEntry| Some((entry.file_name().into_string().ok()?, fs::read_to_string(entry.path()).ok()?));
        entries.filter_map(one).collect()
    }

    fn of_label(&self, label: &str) -> Vec<String> {
        self.all().into_iter().filter(|(_, other)| other == label).map(|(token, _)| token).collect()
    }

    /// Calls the provider `process` of the hub.
    fn inner(&self, action: &str, request: &Value, token: &str) -> Result<Value, Value> {
        let mut request = request.clone();
        if request["machine"].is_object() {
            request["machine"]["token"] = json!(token);
        }
        let mut child = Command::new(&self.program)
            .args(["provider", action])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the provider");
        child.stdin.take().expect("a pipe").write_all(request.to_string().as_bytes()).expect("written");
        let output = child.wait_with_output().expect("an answer");
        let answer = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        if output.status.success() { Ok(answer) } else { Err(answer) }
    }
}
