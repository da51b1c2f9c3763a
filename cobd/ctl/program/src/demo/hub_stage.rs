//! The hub of the demo: its folder, its process, its machines, and their removal.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cob_hub_api::{Cluster, Machine, Preview};
use cob_processes::end_all_in;
use cobctl::failure::Failure;
use cobctl::screen::{Paint, Screen};
use serde::de::DeserializeOwned;

use super::stage::{cant, terminate};
use super::{LOOK, line};
use crate::webshop;

/// The programs that the hub runs, and its own.
const PROGRAMS: [&str; 4] = ["cobd", "cobgen", "cobctl", cobhub::cli::NAME];
/// How long the hub may take to start and to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long processes have to end before they are killed.
const GRACE: Duration = Duration::from_secs(3);
/// The service that customers ask, and its port.
const SHOP: (&str, u16) = ("lb", 7410);
/// The service on the machine that dies.
const VICTIM: &str = "app";
/// The files of the catalogue.
const FILES: [(&str, &str); 5] = [
    ("security.yaml", "security: loopback-only\n"),
    ("db.yaml", include_str!("shop/db.yaml")),
    ("app.yaml", include_str!("shop/app.yaml")),
    ("lb.yaml", include_str!("shop/lb.yaml")),
    ("webshop.yaml", include_str!("shop/webshop.yaml")),
];

/// The user who gives a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum As {
    /// The owner of the hub, at its socket.
    Administrator,
    /// The user with the token, at the address.
    User,
}

pub(super) struct HubStage {
    folder: PathBuf,
    program: PathBuf,
    address: SocketAddr,
    hub: Option<Child>,
    is_cleared: bool,
}

impl HubStage {
    /// A folder with the programs of the hub: links to this program, which acts as the program that is called.
    pub(super) fn set() -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::environment)?;
        let made = tempfile::Builder::new().prefix("cob-").tempdir();
        let folder = made.map_err(|e| cant("make a folder in", &std::env::temp_dir(), e))?.keep();
        let folder = folder.canonicalize().map_err(|e| cant("find", &folder, e))?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Failure::environment)?;
        let address = listener.local_addr().map_err(Failure::environment)?;
        let stage = Self { folder, program, address, hub: None, is_cleared: false };
        let programs = stage.folder.join("bin");
        fs::create_dir(&programs).map_err(|e| cant("make the folder", &programs, e))?;
        for name in PROGRAMS {
            let link = programs.join(name);
            symlink(&stage.program, &link).map_err(|e| cant("make the link", &link, e))?;
        }
        Ok(stage)
    }

    pub(super) async fn start_hub(&mut self, screen: &mut Screen) -> Result<(), Failure> {
        typed(screen, &format!("cobhub serve --folder hub --listen {} &", self.address))?;
        let log = self.folder.join("hub.log");
        let log = File::create(&log).map_err(|e| cant("write", &log, e))?;
        let program = self.folder.join("bin").join(cobhub::cli::NAME);
        let hub = Command::new(&program)
            .args(["serve", "--folder", "hub", "--programs", "bin", "--listen", &self.address.to_string()])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C reaches only the demo, which then removes all in order.
            .process_group(0)
            .spawn();
        let hub = self.hub.insert(hub.map_err(|e| cant("execute", &program, e))?);
        let socket = self.folder.join("hub/hub.sock");
        let limit = Instant::now() + PATIENCE;
        while UnixStream::connect(&socket).is_err() {
            if Instant::now() > limit || matches!(hub.try_wait(), Ok(Some(_))) {
                return Err(Failure::environment("the hub does not come up"));
            }
            tokio::time::sleep(LOOK).await;
        }
        typed(screen, "export COB_HUB=hub")
    }

    /// Shows how a user names the hub and the token.
    pub(super) fn become_user(&self, screen: &mut Screen) -> Result<(), Failure> {
        typed(screen, &format!("export COB_HUB=http://{} COB_HUB_TOKEN=$(cat ann.token)", self.address))
    }

    /// Writes the files of the catalogue, and a template with a mistake.
    pub(super) fn write_catalogue(&self) -> Result<(), Failure> {
        let quoted = |path: &PathBuf| serde_json::Value::from(path.to_string_lossy()).to_string();
        let (program, folder) = (quoted(&self.program), quoted(&self.folder.join("shop")));
        for (name, text) in FILES {
            let text = text.replace("PROGRAM", &program).replace("FOLDER", &folder);
            self.write(name, &text)?;
            if name == "webshop.yaml" {
                self.write("wrong.yaml", &text.replace("services: [db,", "services: [dbx,"))?;
            }
        }
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(|e| cant("write", &path, e))
    }

    /// Shows a command, then runs it; it has to succeed.
    pub(super) async fn command(&self, screen: &mut Screen, by: As, words: &[&str]) -> Result<(), Failure> {
        match self.status(screen, by, words).await? {
            0 => Ok(()),
            status => Err(Failure::environment(format!("`cobctl {}` ended with status {status}", words.join(" ")))),
        }
    }

    /// Shows a command, runs it, and returns its exit status.
    pub(super) async fn status(&self, screen: &mut Screen, by: As, words: &[&str]) -> Result<u8, Failure> {
        typed(screen, &format!("cobctl {}", words.join(" ")))?;
        Ok(self.run(screen, by, words).await)
    }

    /// Runs a command in the folder of the demo: the environment of this process is not that of its user.
    async fn run(&self, screen: &mut Screen, by: As, words: &[&str]) -> u8 {
        let within = |name: &str| self.folder.join(name).display().to_string();
        let is_file = |word: &str| word.ends_with(".yaml") || word.ends_with(".token");
        let mut all: Vec<String> = Vec::new();
        for (at, word) in words.iter().enumerate() {
            // The path in the catalogue stays as it is.
            let is_local = is_file(word) && words.get(at.wrapping_sub(1)) != Some(&"set-file");
            all.push(if is_local { within(word) } else { (*word).to_owned() });
        }
        let more = match by {
            As::Administrator => vec!["--hub".to_owned(), within("hub")],
            As::User => {
                let hub = format!("http://{}", self.address);
                vec!["--hub".to_owned(), hub, "--token-file".to_owned(), within("ann.token")]
            }
        };
        all.extend(more);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        Box::pin(cobctl::run_with(line(&all), screen, crate::EXTENSION)).await
    }

    /// The answer of a command as JSON.
    async fn ask<T: DeserializeOwned>(&self, words: &[&str]) -> Result<T, Failure> {
        let (mut screen, written) = Screen::memory();
        let status = self.run(&mut screen, As::User, &[words, &["--json"]].concat()).await;
        let answer = serde_json::from_str(&written.out()).ok().filter(|_| status == 0);
        answer.ok_or_else(|| Failure::environment(format!("`cobctl {}` failed: {}", words.join(" "), written.out())))
    }

    /// A machine that runs a service.
    async fn machine(&self, service: &str) -> Result<Machine, Failure> {
        let preview: Preview = self.ask(&["cluster", "restart", "shop", "--plan"]).await?;
        let cluster: Cluster = self.ask(&["cluster", "show", "shop"]).await?;
        let node = preview.nodes.into_iter().find(|node| node.services.iter().any(|name| name == service));
        let machine = node.and_then(|node| cluster.machines.into_iter().find(|machine| machine.host == node.name));
        machine.ok_or_else(|| Failure::environment(format!("no machine runs {service}")))
    }

    /// Asks the shop, as a customer does.
    pub(super) async fn customer(&self, screen: &mut Screen) -> Result<(), Failure> {
        let machine = self.machine(SHOP.0).await?;
        let address = machine.address.as_deref().unwrap_or_default();
        let address = address.strip_prefix("tcp://").and_then(|text| text.parse::<SocketAddr>().ok());
        let Some(address) = address else { return Err(Failure::environment("the load balancer has no address")) };
        let answer = webshop::ask((address.ip(), SHOP.1).into()).map_err(|e| Failure::environment(e.to_string()))?;
        screen.line(&format!("  A customer asks the load balancer on {}: {answer}", machine.host))?;
        Ok(())
    }

    /// Kills all processes of a machine, as a power failure does. Returns its name.
    pub(super) async fn kill_machine(&self, screen: &mut Screen) -> Result<String, Failure> {
        let machine = self.machine(VICTIM).await?;
        end_all_in(&self.folder.join("hub/providers/process").join(&machine.token), Duration::ZERO);
        screen
            .line(&format!("  All processes of {} are killed: its daemon and an application server", machine.host))?;
        Ok(machine.host)
    }

    /// The last lines of the hub's log, for a failed demo.
    pub(super) fn explain_failure(&self, screen: &mut Screen) {
        let log = fs::read_to_string(self.folder.join("hub.log")).unwrap_or_default();
        for text in log.lines().rev().take(10).collect::<Vec<_>>().into_iter().rev() {
            screen.say(&format!("hub: {text}"));
        }
    }

    /// Ends every process of the demo, and deletes the folder; fails if a part of it remains.
    pub(super) fn clear(&mut self) -> Result<(), Failure> {
        self.is_cleared = true;
        if let Some(mut hub) = self.hub.take() {
            terminate(hub.id());
            let limit = Instant::now() + PATIENCE;
            while Instant::now() < limit && matches!(hub.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK);
            }
            // For a hub that did not end by itself; otherwise without effect.
            let _ = hub.kill();
            let _ = hub.wait();
        }
        // Jobs survive the hub, and machines survive their jobs.
        end_all_in(&self.folder, GRACE);
        fs::remove_dir_all(&self.folder).map_err(|e| cant("delete", &self.folder, e))
    }
}

impl Drop for HubStage {
    fn drop(&mut self) {
        if !self.is_cleared {
            // Undeletable files remain in the folder for temporary files.
            let _ = self.clear();
        }
    }
}

/// Shows a command as a user would type it.
fn typed(screen: &mut Screen, text: &str) -> Result<(), Failure> {
    let text = screen.paint(Paint::Dim, &format!("  $ {text}"));
    screen.line(&text)?;
    Ok(())
}
