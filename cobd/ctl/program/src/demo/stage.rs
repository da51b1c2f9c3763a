//! The cluster of the demo: its folder, its daemons, and their removal.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cob_processes::end_all_in;
use cob_types::GenerationNumber;
use cob_types::history::{HistoryEntry, HistoryEvent};
use cob_types::past::{RecordedTransition, Running};
use cob_types::status::ClusterStatus;

use super::{LOOK, is_worth_asking, line};
use crate::webshop::{self, Ports, Version};
use cobctl::failure::Failure;
use cobctl::screen::{Paint, Screen};

/// The first argument with which this program runs as the daemon.
pub(crate) const DAEMON: &str = "__cobd";
const HOSTS: [&str; 3] = ["n1", "n2", "n3"];
/// How long daemons may take to start, and processes to end.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long processes have to end before they are killed.
const GRACE: Duration = Duration::from_secs(3);

pub(crate) struct Stage {
    folder: PathBuf,
    program: PathBuf,
    ports: Ports,
    daemons: Vec<Child>,
    /// Whether to remove the cluster when the demo ends, even after a failure.
    clear_at_end: bool,
}

impl Stage {
    pub(crate) fn set(keep: Option<PathBuf>) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(Failure::environment)?;
        let clear_at_end = keep.is_none();
        let folder = match keep {
            Some(folder) => {
                fs::create_dir_all(&folder).map_err(|e| cant("make the folder", &folder, e))?;
                if fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some()) {
                    let what = format!("the folder {} is not empty", folder.display());
                    return Err(Failure::usage(what).hint("name an empty or new folder"));
                }
                folder.canonicalize().map_err(|e| cant("find", &folder, e))?
            }
            None => {
                let made = tempfile::Builder::new().prefix("cob-demo-").tempdir();
                made.map_err(|e| cant("make a folder in", &std::env::temp_dir(), e))?.keep()
            }
        };
        let folder = folder.canonicalize().map_err(|e| cant("find", &folder, e))?;
        let ports = free_ports().map_err(Failure::environment)?;
        Ok(Self { folder, program, ports, daemons: Vec::new(), clear_at_end })
    }

    /// The cluster of an earlier demo.
    pub(crate) fn found(folder: &Path) -> Result<Self, Failure> {
        let is_ours = HOSTS.iter().all(|h| folder.join(format!("{h}.toml")).is_file()) && folder.join("model").is_dir();
        if !is_ours {
            let what = format!("{} is not the folder of a demo", folder.display());
            return Err(Failure::usage(what).hint("use the folder of `cobctl demo --keep`"));
        }
        let folder = folder.canonicalize().map_err(|e| cant("find", folder, e))?;
        let program = std::env::current_exe().map_err(Failure::environment)?;
        Ok(Self { folder, program, ports: Ports::default(), daemons: Vec::new(), clear_at_end: false })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn depot(&self) -> String {
        self.folder.join("depot").display().to_string()
    }

    pub(crate) fn shop(&self) -> SocketAddr {
        self.ports.shop()
    }

    pub(crate) fn write_model(&self, version: Version) -> Result<String, Failure> {
        let folder = self.folder.join("model");
        let model = webshop::write_model(&folder, &self.program, &self.ports, version);
        Ok(model.map_err(|e| cant("write the model into", &folder, e))?.display().to_string())
    }

    /// Writes a model with the hosts and without change objects.
    pub(crate) fn write_empty_model(&self) -> Result<String, Failure> {
        let path = self.folder.join("closed.yaml");
        let mut text = "security: loopback-only\nhosts:\n".to_owned();
        for (host, port) in HOSTS.iter().zip(self.ports.hosts) {
            text.push_str(&format!("  {host}: {{address: \"tcp://127.0.0.1:{port}\"}}\n"));
        }
        fs::write(&path, text).map_err(|e| cant("write", &path, e))?;
        Ok(path.display().to_string())
    }

    pub(crate) async fn start_daemons(&mut self) -> Result<(), Failure> {
        for host in HOSTS {
            let config = self.folder.join(format!("{host}.toml"));
            let text =
                format!("host = \"{host}\"\ndepot = \"depot\"\nstate_dir = \"{host}\"\nhttp = \"{host}.sock\"\n");
            fs::write(&config, text).map_err(|e| cant("write", &config, e))?;
            let log = self.folder.join(format!("{host}.log"));
            let log = File::create(&log).map_err(|e| cant("write", &log, e))?;
            let daemon = Command::new(&self.program)
                .args([DAEMON, "run", "--config"])
                .arg(&config)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                // Ctrl-C reaches only the demo, which then removes the cluster in order.
                .process_group(0)
                .spawn();
            self.daemons.push(daemon.map_err(|e| cant("execute", &self.program, e))?);
        }
        let limit = Instant::now() + PATIENCE;
        for host in HOSTS {
            while UnixStream::connect(self.folder.join(format!("{host}.sock"))).is_err() {
                if Instant::now() > limit || self.daemons.iter_mut().any(|d| matches!(d.try_wait(), Ok(Some(_)))) {
                    return Err(Failure::environment(format!("the daemon of {host} does not come up")));
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(())
    }

    /// Shows a command as an operator would type it.
    pub(crate) fn show(&self, screen: &mut Screen, words: &[&str]) -> Result<(), Failure> {
        self.typed(screen, &format!("cobctl --depot depot {}", words.join(" ")))
    }

    fn typed(&self, screen: &mut Screen, text: &str) -> Result<(), Failure> {
        let text = text.replace(&format!("{}/", self.folder.display()), "");
        let text = screen.paint(Paint::Dim, &format!("  $ {text}"));
        screen.line(&text)?;
        Ok(())
    }

    /// Runs a command of the generator.
    pub(crate) fn generator(&self, screen: &mut Screen, words: &[&str]) -> Result<(), Failure> {
        let quoted: Vec<String> =
            words.iter().map(|w| if w.contains(' ') { format!("\"{w}\"") } else { (*w).to_owned() }).collect();
        self.typed(screen, &format!("cobgen {}", quoted.join(" ")))?;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let args = std::iter::once("cobgen").chain(words.iter().copied()).map(Into::into);
        let code = cobgen::cli::run(
            args.collect(),
            &mut cobgen::cli::Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false },
        );
        let said = [out, err].concat();
        let said = String::from_utf8_lossy(&said).replace(&format!("{}/", self.folder.display()), "");
        for text in said.lines() {
            screen.line(&format!("    {text}"))?;
        }
        if code == 0 { Ok(()) } else { Err(Failure::environment(format!("cobgen ended with status {code}"))) }
    }

    /// Shows a command of this program, then runs it.
    pub(crate) async fn command(&self, screen: &mut Screen, words: &[&str]) -> Result<(), Failure> {
        self.show(screen, words)?;
        let depot = self.depot();
        let all: Vec<&str> = ["--depot", &depot].into_iter().chain(words.iter().copied()).collect();
        let code = Box::pin(cobctl::run(line(&all), screen)).await;
        // `explain` exits with a non-zero status if the change object waits.
        if code == 0 || words.first() == Some(&"explain") {
            return Ok(());
        }
        Err(Failure::environment(format!("`cobctl {}` ended with status {code}", words.join(" "))))
    }

    /// Runs a command without showing it.
    pub(crate) async fn order(&self, words: &[&str]) -> Result<(), Failure> {
        let (code, out) = self.quietly(words).await;
        if code == 0 { Ok(()) } else { Err(Failure::environment(out)) }
    }

    async fn quietly(&self, words: &[&str]) -> (u8, String) {
        let depot = self.depot();
        let all: Vec<&str> = ["--depot", &depot].into_iter().chain(words.iter().copied()).collect();
        let (mut screen, written) = Screen::memory();
        let code = Box::pin(cobctl::run(line(&all), &mut screen)).await;
        (code, written.out())
    }

    /// The last change object of the chain that waits for a lock, once it waits; `None` if the demo is too fast.
    pub(crate) async fn somebody_who_waits(&self) -> Option<String> {
        let limit = Instant::now() + Duration::from_secs(2);
        while Instant::now() < limit {
            let (_, status) = self.quietly(&["status", "--json"]).await;
            let status: ClusterStatus = serde_json::from_str(&status).unwrap_or_default();
            let cobs = || status.hosts.iter().flat_map(|h| &h.cobs);
            let moving = cobs().any(|c| c.phase == cob_types::status::Phase::Moving);
            if let Some(cob) = cobs().rfind(|c| is_worth_asking(c))
                && moving
            {
                return Some(cob.id.to_string());
            }
            if status.hosts.iter().all(|h| h.converged) && !status.hosts.is_empty() {
                return None;
            }
            tokio::time::sleep(LOOK).await;
        }
        None
    }

    /// Asks the shop, as a customer does.
    pub(crate) fn customer(&self, screen: &mut Screen, version: Version) -> Result<(), Failure> {
        let answer = webshop::ask(self.shop()).map_err(|e| Failure::environment(e.to_string()))?;
        screen.line(&format!("  A customer asks the load balancer: {answer}"))?;
        if answer.contains(&format!("price = {}", version.price())) {
            return Ok(());
        }
        Err(Failure::environment(format!("the shop answers with a price other than {}", version.price())))
    }

    /// The actions since the start of the switch to a generation, from the hosts' histories.
    pub(crate) async fn what_happened(&self, screen: &mut Screen, generation: u64) -> Result<(), Failure> {
        let (_, text) = self.quietly(&["history", "--json"]).await;
        let mut entries: Vec<HistoryEntry> = text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
        let go = HistoryEvent::Go(Some(GenerationNumber(generation)));
        let went = entries.iter().filter(|e| e.happened() == go).map(|e| e.ts_ns).min().unwrap_or(0);
        entries.retain(|e| e.ts_ns >= went);
        entries.sort_by_key(|e| e.ts_ns);
        let is_start = |e: &&HistoryEntry| matches!(e.happened(), HistoryEvent::Start(_));
        let first = entries.iter().find(is_start).map_or(0, |e| e.ts_ns);
        let mut running = Running::default();
        for end in &entries {
            let Some(RecordedTransition { cob, from, to, began_ns }) = running.take(end) else { continue };
            let text = format!(
                "    {:>7.3} s  {:<16} {from} -> {to}  ({:.0} ms)",
                seconds(began_ns - first),
                cob.to_string(),
                seconds(end.ts_ns.saturating_sub(began_ns)) * 1000.0
            );
            screen.line(&text)?;
        }
        Ok(())
    }

    /// The last lines of the daemons' logs, for a failed demo.
    pub(crate) fn explain_failure(&self, screen: &mut Screen) {
        for host in HOSTS {
            let log = fs::read_to_string(self.folder.join(format!("{host}.log"))).unwrap_or_default();
            for text in log.lines().rev().take(5).collect::<Vec<_>>().into_iter().rev() {
                screen.say(&format!("{host}: {text}"));
            }
        }
    }

    /// Lets the daemons continue after the end of this program.
    pub(crate) fn leave_standing(&mut self) {
        self.daemons.clear();
        self.clear_at_end = false;
    }

    pub(crate) fn stop_daemons(&mut self) {
        for daemon in &self.daemons {
            terminate(daemon.id());
        }
        let limit = Instant::now() + PATIENCE;
        for daemon in &mut self.daemons {
            while Instant::now() < limit && matches!(daemon.try_wait(), Ok(None)) {
                std::thread::sleep(LOOK);
            }
            // For a daemon that did not end by itself; otherwise without effect.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        self.daemons.clear();
    }

    /// Deletes the folder; fails if a part of it remains.
    pub(crate) fn clear(&mut self) -> Result<(), Failure> {
        self.clear_at_end = false;
        self.clear_all()
    }

    /// Ends every process of the cluster, and deletes the folder.
    pub(crate) fn clear_all(&self) -> Result<(), Failure> {
        end_all_in(&self.folder, GRACE);
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|e| cant("delete", &self.folder, e)),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.clear_at_end {
            self.stop_daemons();
            // Undeletable files remain in the folder for temporary files.
            let _ = self.clear_all();
        }
    }
}

/// Asks a child to end.
pub(super) fn terminate(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // A process that has ended needs no signal.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn free_ports() -> io::Result<Ports> {
    let [n1, n2, n3, db, app1, app2, lb] = cob_processes::free_ports()?;
    Ok(Ports { hosts: [n1, n2, n3], db, apps: [app1, app2], lb })
}

pub(super) fn cant(what: &str, path: &Path, error: io::Error) -> Failure {
    Failure::environment(anyhow::Error::new(error).context(format!("can't {what} {}", path.display())))
}
