//! For tests: a simulated systemd with starts, stops and links of units, on a separate bus.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::stream::StreamExt as _;
use tokio::task::JoinHandle;
use zbus::message::Type;
use zbus::{Connection, MessageStream, OwnedObjectPath, Variant};

use super::bus::{Changes, MANAGER, MANAGER_PATH, NAME, UNITS_PATH};
use crate::run::testing::wait_for;

/// The running units, with the number of the run.
type Runs = Arc<Mutex<BTreeMap<String, u8>>>;
/// Other properties of units, by unit and property.
type Properties = Arc<Mutex<BTreeMap<String, BTreeMap<&'static str, Variant<'static>>>>>;

/// A simulated systemd, until it is dropped.
pub(in crate::kinds::service) struct FakeSystemd {
    folder: tempfile::TempDir,
    daemon: Child,
    runs: Runs,
    properties: Properties,
    jobs: Arc<AtomicU8>,
    served: JoinHandle<()>,
}

impl FakeSystemd {
    /// Starts it. Returns `None` if no bus is available.
    pub(in crate::kinds::service) async fn begin() -> Option<Self> {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().display();
        let policy = "<allow send_destination='*'/><allow receive_sender='*'/><allow own='*'/><allow user='*'/>";
        let configuration = format!(
            "<busconfig><listen>unix:path={path}/bus</listen><auth>EXTERNAL</auth>\
             <policy context='default'>{policy}</policy></busconfig>"
        );
        std::fs::write(folder.path().join("bus.conf"), configuration).expect("written");
        let mut daemon = Command::new("dbus-daemon");
        daemon.args(["--nofork", &format!("--config-file={path}/bus.conf")]).stderr(Stdio::null());
        let Ok(daemon) = daemon.spawn() else {
            eprintln!("skipped: it takes dbus-daemon");
            return None;
        };
        let address = format!("unix:path={path}/bus");
        wait_for("the bus", || std::os::unix::net::UnixStream::connect(folder.path().join("bus")).is_ok());
        let bus = zbus::connection::Builder::address(address.as_str()).build().await.expect("a connection");
        // A call before the first listener would never be answered.
        let calls = MessageStream::from(bus.clone());
        bus.request_name(NAME).await.expect("nobody has it");
        let (runs, properties) = (Runs::default(), Properties::default());
        let place = folder.path().to_owned();
        let jobs = Arc::new(AtomicU8::new(0));
        let served = tokio::spawn(serve(calls, Arc::clone(&runs), Arc::clone(&properties), Arc::clone(&jobs), place));
        Some(Self { folder, daemon, runs, properties, jobs, served })
    }

    pub(in crate::kinds::service) fn address(&self) -> String {
        format!("unix:path={}/bus", self.folder.path().display())
    }

    /// The administrators' folder for unit files.
    pub(super) fn units(&self) -> PathBuf {
        self.folder.path().join("units")
    }

    /// The folder for unit files until the next boot.
    pub(super) fn runtime(&self) -> PathBuf {
        self.folder.path().join("runtime")
    }

    /// The running units.
    pub(in crate::kinds::service) fn running(&self) -> Vec<String> {
        self.runs.lock().expect("not poisoned").keys().cloned().collect()
    }

    /// Sets a property of a unit. A unit with [`CRASHES`] has a new run at every look.
    pub(super) fn tell(&self, unit: &str, property: &'static str, value: impl Into<Variant<'static>>) {
        let mut all = self.properties.lock().expect("not poisoned");
        all.entry(unit.to_owned()).or_default().insert(property, value.into());
    }

    /// Removes a property of a unit.
    pub(super) fn forget(&self, unit: &str, property: &str) {
        let mut all = self.properties.lock().expect("not poisoned");
        all.entry(unit.to_owned()).or_default().remove(property);
    }

    /// The number of jobs.
    pub(super) fn jobs(&self) -> u8 {
        self.jobs.load(Ordering::SeqCst)
    }

    /// Starts a unit as a user would.
    pub(super) fn start(&self, unit: &str) {
        self.runs.lock().expect("not poisoned").insert(unit.to_owned(), 0);
    }
}

impl Drop for FakeSystemd {
    fn drop(&mut self) {
        self.served.abort();
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// No property of systemd: the unit ends at once and is restarted.
pub(super) const CRASHES: &str = "crashes";

/// Every unit is loaded and wanted by the same target; jobs end at once. A running socket always has work for its service.
async fn serve(mut calls: MessageStream, runs: Runs, told: Properties, begun: Arc<AtomicU8>, base: PathBuf) {
    let bus = Connection::from(&calls);
    let (mut names, mut jobs) = (Vec::<String>::new(), 0_u8);
    while let Some(Ok(call)) = calls.next().await {
        let header = call.header();
        if header.message_type() != Type::MethodCall {
            continue;
        }
        let method = header.member().map(|member| member.as_str().to_owned()).unwrap_or_default();
        let answered = match method.as_str() {
            "LoadUnit" => {
                let unit: String = call.body().deserialize().expect("a name");
                let unit = main_name(&base, unit);
                let known = names.iter().position(|name| *name == unit);
                let at = known.unwrap_or_else(|| {
                    names.push(unit);
                    names.len() - 1
                });
                bus.reply(&header, &object(&format!("{UNITS_PATH}/u{at}"))).await
            }
            "GetAll" => {
                let path = header.path().map(|path| path.as_str().to_owned()).unwrap_or_default();
                let at = path.rsplit_once('u').and_then(|(_, at)| at.parse::<usize>().ok()).expect("a unit");
                let told = told.lock().expect("not poisoned").get(&names[at]).cloned().unwrap_or_default();
                let run = runs.lock().expect("not poisoned").get_mut(&names[at]).map(|run| {
                    *run += u8::from(told.contains_key(CRASHES));
                    *run
                });
                let mut all = properties(&base, &names[at], run);
                all.extend(told);
                bus.reply(&header, &all).await
            }
            "StartUnit" | "RestartUnit" | "StopUnit" => {
                let (unit, _): (String, String) = call.body().deserialize().expect("a name and a mode");
                jobs += 1;
                begun.store(jobs, Ordering::SeqCst);
                let triggered_by = told.lock().expect("not poisoned").get(&unit).and_then(|told| {
                    let by = told.get("TriggeredBy")?.try_clone().ok()?;
                    Vec::<String>::try_from(by).ok()
                });
                {
                    let mut runs = runs.lock().expect("not poisoned");
                    let has_work = |unit: &String| unit.ends_with(".socket") && runs.contains_key(unit);
                    let is_started_again = triggered_by.into_iter().flatten().any(|unit| has_work(&unit));
                    match method.as_str() {
                        "StopUnit" if is_started_again => _ = runs.insert(unit.clone(), jobs),
                        "StopUnit" => _ = runs.remove(&unit),
                        _ => _ = runs.insert(unit.clone(), jobs),
                    }
                }
                let job = object(&format!("{MANAGER_PATH}/job/{jobs}"));
                bus.reply(&header, &job).await.expect("answered");
                let body = (u32::from(jobs), job, unit, "done");
                bus.emit_signal(None::<&str>, MANAGER_PATH, MANAGER, "JobRemoved", &body).await
            }
            "Reload" => {
                told.lock().expect("not poisoned").values_mut().for_each(|told| drop(told.remove("NeedDaemonReload")));
                bus.reply(&header, &()).await
            }
            "MaskUnitFiles" => {
                let (units, _, _): (Vec<String>, bool, bool) = call.body().deserialize().expect("units");
                let place = base.join("units").join(&units[0]);
                let changed = symlink("/dev/null", &place).is_ok();
                let changes =
                    changed.then(|| ("symlink".to_owned(), place.display().to_string(), "/dev/null".to_owned()));
                bus.reply(&header, &Changes::from_iter(changes)).await
            }
            "EnableUnitFiles" => {
                let (units, runtime, _): (Vec<String>, bool, bool) = call.body().deserialize().expect("units");
                bus.reply(&header, &(true, enable(&folder_of(&base, runtime), &units[0]))).await
            }
            "DisableUnitFiles" | "UnmaskUnitFiles" => {
                let (units, runtime): (Vec<String>, bool) = call.body().deserialize().expect("units");
                bus.reply(&header, &unlink(&folder_of(&base, runtime), &units[0])).await
            }
            _ => bus.reply(&header, &()).await,
        };
        answered.expect("answered");
    }
}

fn object(path: &str) -> OwnedObjectPath {
    OwnedObjectPath::try_from(path).expect("a path")
}

fn folder_of(base: &Path, runtime: bool) -> PathBuf {
    base.join(if runtime { "runtime" } else { "units" })
}

/// A link with another name leads to the unit itself.
fn main_name(base: &Path, unit: String) -> String {
    let target = fs::read_link(base.join("units").join(&unit)).ok().filter(|target| target != Path::new("/dev/null"));
    target.and_then(|target| target.file_name()?.to_str().map(str::to_owned)).unwrap_or(unit)
}

/// The place of the link for its section `[Install]`.
fn wanted(folder: &Path, unit: &str) -> PathBuf {
    let text = fs::read_to_string(folder.join(unit)).unwrap_or_default();
    let target = text.lines().find_map(|line| line.strip_prefix("WantedBy=")).unwrap_or("multi-user.target");
    folder.join(format!("{target}.wants")).join(unit)
}

/// The links that enable it.
fn wants(folder: &Path, unit: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path().join(unit));
    entries.filter(|place| place.is_symlink()).collect()
}

fn enable(folder: &Path, unit: &str) -> Changes {
    let place = wanted(folder, unit);
    fs::create_dir_all(place.parent().expect("a folder")).expect("made");
    let made = symlink("/", &place).is_ok();
    Changes::from_iter(made.then(|| ("symlink".to_owned(), place.display().to_string(), String::new())))
}

/// Removes its links, also the link to its file and its aliases.
fn unlink(folder: &Path, unit: &str) -> Changes {
    let links = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        let target = fs::read_link(path).ok();
        target.is_some_and(|target| path.ends_with(unit) || target.ends_with(unit))
    };
    let gone = links.filter(named).chain(wants(folder, unit)).filter(|place| fs::remove_file(place).is_ok());
    gone.map(|place| ("unlink".to_owned(), place.display().to_string(), String::new())).collect()
}

fn properties(base: &Path, unit: &str, run: Option<u8>) -> BTreeMap<&'static str, Variant<'static>> {
    let masked = fs::read_link(base.join("units").join(unit)).is_ok_and(|target| target == Path::new("/dev/null"));
    let (active, sub) = if run.is_some() { ("active", "running") } else { ("inactive", "dead") };
    let linked = |runtime| !wants(&folder_of(base, runtime), unit).is_empty();
    let file_state = match (linked(false), linked(true)) {
        (true, _) => "enabled",
        (false, true) => "enabled-runtime",
        (false, false) => "disabled",
    };
    let (load, file_state) = if masked { ("masked", "masked") } else { ("loaded", file_state) };
    let words = [("LoadState", load), ("UnitFileState", file_state), ("ActiveState", active), ("SubState", sub)];
    let mut all: BTreeMap<_, _> = words.into_iter().map(|(name, word)| (name, Variant::from(word))).collect();
    let fragment = base.join("units").join(unit);
    if fragment.is_file() {
        all.insert("FragmentPath", Variant::from(fragment.display().to_string()));
    }
    all.insert("Id", Variant::from(unit.to_owned()));
    all.insert("InvocationID", Variant::from(run.into_iter().collect::<Vec<u8>>()));
    all
}
