//! Ends the program when a template takes too much memory or time.
//!
//! The engine bounds the instructions of a template, and filters have bounds of their own, but a text that doubles
//! itself sixty times takes only a few hundred instructions. So a program that reads foreign models has a thread that
//! watches the memory of the process while templates are rendered. No output is written at that time: templates come
//! first. `docs/decisions/0030-the-generator-settles-the-model.md` has the reasons.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::json;

use crate::diagnostic::{Diagnostic, render, to_json};
use crate::draft::Place;
use crate::model::Sources;

/// The most additional memory of the process while a template is rendered, in bytes.
const MAX_MEMORY: u64 = 512 << 20;
/// The time limit of a template.
const MAX_TIME: Duration = Duration::from_secs(20);
/// The interval between two checks.
const LOOK: Duration = Duration::from_millis(5);

static GUARD: OnceLock<Guard> = OnceLock::new();

/// The templates that are rendered at the moment.
#[derive(Default)]
struct Guard {
    now: Mutex<Now>,
    begun: Condvar,
}

#[derive(Default)]
struct Now {
    next: u64,
    /// The place of each template, by number.
    places: BTreeMap<u64, Place>,
    /// Whether the thread waits for a template.
    idle: bool,
}

impl Guard {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until templates are rendered, and returns their places.
    fn wait(&self) -> BTreeMap<u64, Place> {
        let mut now = self.now();
        while now.places.is_empty() {
            now.idle = true;
            now = self.begun.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        now.idle = false;
        now.places.clone()
    }
}

/// Starts to watch the templates of this process. `as_json`: faults are printed as `cobgen check --json` does. A fault
/// ends the process: `end` then gets its exit status, once.
pub fn start(as_json: bool, end: Sender<u8>) {
    if GUARD.set(Guard::default()).is_ok() {
        // Without the thread the other bounds still apply.
        let _ = std::thread::Builder::new().name("guard".to_owned()).spawn(move || look_after(as_json, &end));
    }
}

/// A template under rendering, until this value is dropped.
pub(crate) struct Guarded(&'static Guard, u64);

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.now().places.remove(&self.1);
    }
}

/// Registers a template; `None` if no thread watches.
pub(crate) fn begin(place: impl FnOnce() -> Place) -> Option<Guarded> {
    let guard = GUARD.get()?;
    let place = place();
    let mut now = guard.now();
    let number = now.next;
    now.next += 1;
    now.places.insert(number, place);
    if now.idle {
        guard.begun.notify_one();
    }
    drop(now);
    Some(Guarded(guard, number))
}

fn look_after(as_json: bool, end: &Sender<u8>) {
    let Some(guard) = GUARD.get() else { return };
    let mut looks: BTreeMap<u64, Looks> = BTreeMap::new();
    loop {
        let running = guard.wait();
        let memory = memory().unwrap_or(0);
        looks.retain(|number, _| running.contains_key(number));
        for (number, place) in running {
            let looks = looks.entry(number).or_insert(Looks { before: memory, count: 0 });
            looks.count += 1;
            if let Some(fault) = looks.fault(memory) {
                tell(&fault.at(place), as_json);
                // If the receiver is gone, the program has already ended.
                let _ = end.send(crate::cli::Answer::Bad.status());
                return;
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// The observations of a template under rendering.
struct Looks {
    /// The memory of the process at the first check, in bytes.
    before: u64,
    /// The number of checks, which measures the time: a stopped process is not counted as working.
    count: u32,
}

impl Looks {
    fn fault(&self, memory: u64) -> Option<Diagnostic> {
        let (what, help) = if memory.saturating_sub(self.before) > MAX_MEMORY {
            (
                format!("this template takes more than {} MiB", MAX_MEMORY >> 20),
                "shorten it, or use a file for each part",
            )
        } else if LOOK.saturating_mul(self.count) > MAX_TIME {
            (format!("this template takes longer than {} s", MAX_TIME.as_secs()), "bound its loops")
        } else {
            return None;
        };
        Some(Diagnostic::error("template", what).help(help))
    }
}

/// The memory of the process, in bytes; `None` if it is unknown.
fn memory() -> Option<u64> {
    let all = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = all.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1 << 10))
}

/// Prints past the locks that the program holds on its outputs.
fn tell(fault: &Diagnostic, as_json: bool) {
    let fault = std::slice::from_ref(fault);
    let (output, text) = if as_json {
        let answer = json!({"ok": false, "diagnostics": to_json(fault)});
        (std::io::stdout().as_fd().try_clone_to_owned(), format!("{answer:#}\n"))
    } else {
        (std::io::stderr().as_fd().try_clone_to_owned(), render(fault, &Sources::default(), false))
    };
    if let Ok(output) = output {
        // Without this output the exit status still reports the fault.
        let _ = File::from(output).write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_time_are_bounded() {
        let told = |count, memory| Looks { before: 100, count }.fault(memory).map(|fault| fault.message);
        assert_eq!(told(1, 100 + MAX_MEMORY), None);
        assert_eq!(told(1, 0), None);
        assert_eq!(told(1, 101 + MAX_MEMORY).as_deref(), Some("this template takes more than 512 MiB"));
        assert_eq!(told(4_000, 0), None);
        assert_eq!(told(4_001, 0).as_deref(), Some("this template takes longer than 20 s"));
        assert!(memory().is_some_and(|memory| memory > 1 << 20));
    }
}
