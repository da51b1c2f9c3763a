//! Watches services for changes from outside: units by systemd's signals, supervised services by their folders.
//!
//! systemd signals changes of a unit. A supervisor writes the file `ended` at its end; if it is killed, its lock file
//! is closed. Each event only causes a check.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cob_types::{Cob, CobId};
use futures_util::StreamExt as _;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::folder::{ENDED, LOCK};
use super::unit::{Bus, Change, unit_of};
use crate::kinds::backend::{Tools, make_folder};
use crate::kinds::systemd::Systemd;

/// The pause between two attempts to reach systemd.
const AGAIN: Duration = Duration::from_secs(10);
/// Changes of unit files within this time cause one check of all units.
const TOGETHER: Duration = Duration::from_millis(500);

/// Watches all services of this daemon.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    units: Mutex<Option<watch::Sender<Units>>>,
    kept: Mutex<Option<watch::Sender<Folders>>>,
    triggers: Mutex<Arc<BTreeSet<String>>>,
    /// The units with the preferred state up.
    wanted: Mutex<Arc<BTreeSet<String>>>,
}

/// The suffixes of units that start other units.
const TRIGGERS: [&str; 4] = [".timer", ".socket", ".path", ".automount"];

/// Change objects by the last part of their unit's object path.
type Units = BTreeMap<String, Vec<CobId>>;
/// The receiver of hints.
type Drifts = mpsc::Sender<CobId>;
/// Change objects by their supervision folder.
type Folders = BTreeMap<PathBuf, CobId>;

impl Watcher {
    /// Watches exactly these change objects from now on.
    pub(super) fn watch(&self, tools: &Tools, cobs: &mut dyn Iterator<Item = Arc<Cob>>) {
        let (mut units, mut kept, mut triggers) = (Units::new(), Folders::new(), BTreeSet::new());
        let mut wanted = BTreeSet::new();
        for cob in cobs {
            match unit_of(&cob.content) {
                Some(unit) => {
                    units.entry(escaped(&unit)).or_default().push(cob.id.clone());
                    wanted.extend(Some(unit.clone()).filter(|_| cob.preferred == "up" && !cob.observe));
                    triggers.extend(Some(unit).filter(|unit| TRIGGERS.iter().any(|ending| unit.ends_with(ending))));
                }
                None => drop(kept.insert(tools.service_folder(&cob.id), cob.id.clone())),
            }
        }
        *self.triggers.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(triggers);
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(wanted);
        tell(&self.units, units, |receiver| {
            let (systemd, drifts) = (tools.systemd().clone(), tools.drifts().clone());
            tokio::spawn(watch_units(systemd, receiver, drifts));
        });
        tell(&self.kept, kept, |receiver| {
            let (services, drifts) = (tools.services(), tools.drifts().clone());
            tokio::spawn(async move {
                if let Err(error) = watch_kept(&services, receiver, &drifts).await {
                    warn!(%error, "the end of services is noticed by checks at intervals alone");
                }
            });
        });
    }
}

impl Watcher {
    /// The change object that manages this unit.
    pub(super) fn about(&self, unit: &str) -> Option<CobId> {
        let units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        units.as_ref().and_then(|units| units.borrow().get(&escaped(unit))?.first().cloned())
    }

    /// The units with the preferred state up.
    pub(super) fn wanted(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&self.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The watched units that start other units.
    pub(super) fn triggers(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&self.triggers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Updates the watching task, which starts with the first service to watch.
fn tell<T: Default + PartialEq>(
    place: &Mutex<Option<watch::Sender<T>>>,
    what: T,
    begin: impl FnOnce(watch::Receiver<T>),
) {
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    match place.as_ref() {
        Some(sender) => drop(sender.send_replace(what)),
        None if what == T::default() => {}
        None => {
            let (sender, receiver) = watch::channel(what);
            *place = Some(sender);
            begin(receiver);
        }
    }
}

/// Requests a check. If the queue is full, the periodic check finds the change.
fn hint(drifts: &Drifts, cob: &CobId) {
    let _ = drifts.try_send(cob.clone());
}

async fn watch_units(systemd: Systemd, units: watch::Receiver<Units>, drifts: Drifts) {
    loop {
        if units.has_changed().is_err() {
            // The daemon is ending.
            return;
        }
        match follow(&systemd, &units, &drifts).await {
            Ok(()) => debug!("systemd has closed the connection"),
            // Each check reports the error to the user.
            Err(error) => debug!(error, "units can't be watched"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn follow(systemd: &Systemd, units: &watch::Receiver<Units>, drifts: &Drifts) -> Result<(), String> {
    let bus = Bus::connect(systemd).await?;
    let mut changes = bus.changes().await?;
    // Checks all units, because changes may have happened before.
    units.borrow().values().flatten().for_each(|cob| hint(drifts, cob));
    let mut last: BTreeMap<String, [String; 2]> = BTreeMap::new();
    let mut all_at = None;
    loop {
        let all_due = async {
            match all_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let change = tokio::select! {
            change = changes.next() => change,
            () = all_due => {
                all_at = None;
                units.borrow().values().flatten().for_each(|cob| hint(drifts, cob));
                continue;
            }
        };
        match change {
            // Most signals are about times and counters.
            Some(Change::Unit(unit, seen)) if last.get(&unit) != Some(&seen) => {
                if let Some(cobs) = units.borrow().get(&unit) {
                    cobs.iter().for_each(|cob| hint(drifts, cob));
                    last.insert(unit, seen);
                }
            }
            Some(Change::Unit(_, _) | Change::Nothing) => {}
            // The signals do not name the unit, and many of them come together.
            Some(Change::Files) => all_at = all_at.or(Some(Instant::now() + TOGETHER)),
            None => return Ok(()),
        }
    }
}

/// A unit's name as the last part of its object path.
fn escaped(unit: &str) -> String {
    let mut out = String::new();
    for (i, byte) in unit.bytes().enumerate() {
        if byte.is_ascii_alphabetic() || (i > 0 && byte.is_ascii_digit()) {
            out.push(char::from(byte));
        } else {
            out += &format!("_{byte:02x}");
        }
    }
    out
}

async fn watch_kept(services: &Path, mut kept: watch::Receiver<Folders>, drifts: &Drifts) -> io::Result<()> {
    make_folder(services)?;
    let alarm = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let made = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
    let root = inotify::add_watch(&alarm, services, made)?;
    let mut events = Receiver::from_owned_fd_unchecked(alarm.try_clone()?)?;
    let mut buffer = vec![0; 16 << 10];
    let mut watched: BTreeMap<i32, PathBuf> = BTreeMap::new();
    loop {
        let folders: Vec<PathBuf> = kept.borrow_and_update().keys().cloned().collect();
        watched.extend(folders.iter().filter_map(|folder| Some((add(&alarm, folder)?, folder.clone()))));
        loop {
            let read = tokio::select! {
                changed = kept.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return Ok(()),
                },
                read = events.read(&mut buffer) => read?,
            };
            for (watch, name) in parse(&buffer[..read]) {
                if watch == root {
                    let folder = services.join(&name);
                    watched.extend(add(&alarm, &folder).map(|watch| (watch, folder)));
                } else if name == LOCK || name == ENDED {
                    let cob = watched.get(&watch).and_then(|folder| kept.borrow().get(folder).cloned());
                    cob.iter().for_each(|cob| hint(drifts, cob));
                }
            }
        }
    }
}

/// Watches a service's folder. `None`: it does not exist yet, and an event will report its creation.
fn add(alarm: &OwnedFd, folder: &Path) -> Option<i32> {
    let flags = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
    inotify::add_watch(alarm, folder, flags).ok()
}

/// Parses events of the kernel: watch, mask, cookie, length, name. After an overflow, the periodic checks find lost
/// events.
fn parse(mut bytes: &[u8]) -> Vec<(i32, String)> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<16>() {
        let number = |at: usize| <[u8; 4]>::try_from(&head[at..at + 4]).map(i32::from_ne_bytes).unwrap_or_default();
        let length = usize::try_from(number(12)).unwrap_or_default().min(rest.len());
        let name = rest[..length].split(|byte| *byte == 0).next().unwrap_or_default();
        all.push((number(0), String::from_utf8_lossy(name).into_owned()));
        bytes = &rest[length..];
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_paths_are_escaped_as_in_systemd() {
        assert_eq!(escaped("etcd.service"), "etcd_2eservice");
        assert_eq!(escaped("getty@tty1.service"), "getty_40tty1_2eservice");
        assert_eq!(escaped("7zip-a.timer"), "_37zip_2da_2etimer");
    }

    #[test]
    fn file_events_are_read_in_the_format_of_the_kernel() {
        let event = |watch: i32, name: &[u8]| {
            let numbers = [watch, 8, 0, i32::try_from(name.len()).expect("short")];
            let mut bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
            bytes.extend(name);
            bytes
        };
        let bytes = [event(1, b"ended\0\0\0"), event(2, b""), event(3, b"lock\0\0\0\0")].concat();
        let all = [(1, "ended".to_owned()), (2, String::new()), (3, "lock".to_owned())];
        assert_eq!(parse(&bytes), all);
        // A truncated buffer yields no wrong event and no panic.
        for end in 0..bytes.len() {
            assert!(parse(&bytes[..end]).len() <= 3, "{end}");
        }
    }
}
