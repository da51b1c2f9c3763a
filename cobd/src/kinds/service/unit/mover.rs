//! Carries out the transitions of units: an action like any other, which survives the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cob_kinds::{OnChange, Service};
use cob_types::Command;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use super::before::{Before, Started};
use super::bus::{Bus, Changes, UnitState};
use super::content::{UnitFiles, UnitService as _, identity};
use super::ended::ServiceState;
use super::files::{configuration, is_mask, put_back, write_text};
use super::handover::hand_over;
use super::journal::{ending, last_words as last_words_of};
use super::links::{all_links, install_section, keep_linked, places};
use super::look::{is_run_by_a_trigger, name_as_systemd_does, serves_a_socket, unread_of};
use super::originals::{no_section, of_former, put_all_back, put_other_back};
use super::own::{is_own, refusal};
use super::served::{outside_triggers, start_again, start_triggers, stop_served, stop_what_goes};
use crate::blocking::beside;
use crate::kinds::service::commands::{Commands, environment, last_words};
use crate::kinds::service::folder::ServiceFolder;
use crate::kinds::service::former::{Form, end_commands};
use crate::kinds::service::leaving::Going;
use crate::kinds::service::mover::{Goal, Task};
use crate::kinds::service::ready::Attempts;

/// The pause between two looks at a unit.
const LOOK: Duration = Duration::from_millis(100);
/// The time for cleaning up after a cancellation.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// Carries out a transition.
///
/// # Errors
/// The reason of the failure, as text.
pub(in crate::kinds::service) fn make_move(task: &Task, mut content: Service) -> Result<(), String> {
    let runtime = runtime()?;
    let time = Duration::from_millis(task.timeout_ms);
    // The last quarter is for stopping a unit that did not become ready.
    let limit = Instant::now() + time - time / 4;
    let commands = Commands {
        place: task.folder.clone(),
        working_folder: task.working_folder.clone(),
        environment: environment(&BTreeMap::new()),
        redactor: None,
        grace: Duration::from_millis(task.grace_ms),
        run_as: None,
    };
    let moved = runtime.block_on(async {
        let bus = Bus::connect(&task.systemd).await?;
        let folder = ServiceFolder::new(task.folder.clone());
        // The supervisor of a service holds the lock.
        end_commands(&folder, Form::Unit(&content.name()), &commands, limit.into_std())?;
        // Waits for a departure that still runs after the change object came back.
        let _lock = folder.take_lock_until(limit.into_std()).map_err(|e| format!("taking its lock: {e}"))?;
        let called = content.name();
        name_as_systemd_does(&bus, &task.folder, &mut content).await?;
        let (unit, commands, begun) = (content.name(), Arc::new(commands), SystemTime::now());
        Mover { bus, unit, called, content, task, commands, limit, begun }.go().await
    });
    // A running `ready` command is ended with this process.
    runtime.shutdown_background();
    moved
}

fn runtime() -> Result<Runtime, String> {
    Builder::new_current_thread().enable_all().build().map_err(|e| format!("a runtime: {e}"))
}

/// Restores the original files, enablement and run of a departed change object's unit. Stops as soon as the change
/// object is back.
///
/// # Errors
/// The reason of the failure, as text; it may be tried again.
pub(in crate::kinds::service) fn restore(folder: &Path, going: &Going<'_>) -> Result<(), String> {
    let Some(mut before) = Before::read(folder)?.filter(|_| going.goes_on()) else { return Ok(()) };
    runtime()?.block_on(async {
        let bus = Bus::connect(&before.systemd).await?;
        if !going.goes_on() {
            return Ok(());
        }
        stop_what_goes(&bus, &before).await?;
        put_all_back(&bus, folder, &mut before).await?;
        let (triggers, others): (Vec<_>, Vec<_>) =
            before.that_ran().into_iter().partition(|unit| unit.ends_with(".socket"));
        for unit in triggers.into_iter().chain(others) {
            let state = bus.look(&unit).await?;
            if !going.goes_on() {
                return Ok(());
            }
            // A unit that has gone with its package, or that is masked, stays as it is.
            if state.is_there() && !state.is_masked() && !state.runs() {
                let begun = SystemTime::now();
                // A change object that wants a stopped unit starts it again.
                let limit = || Instant::now() + Duration::from_secs(60);
                let ran = stop_served(&bus, &state, &BTreeSet::new(), limit()).await?;
                let started = bus.job("StartUnit", &unit, limit()).await;
                start_again(&bus, &ran, limit()).await?;
                if let Err(why) = started {
                    let why = explain(&bus, &unit, begun, why).await;
                    return Err(format!("starting {unit} again, which ran before: {why}"));
                }
            }
        }
        if going.goes_on() { Before::remove(folder) } else { Ok(()) }
    })
}

/// Stops the unit of an earlier content if the present content has no unit, and restores its original state.
///
/// # Errors
/// The reason of the failure, as text; it may be tried again.
pub(in crate::kinds::service) fn end_former(folder: &ServiceFolder, limit: std::time::Instant) -> Result<(), String> {
    let Some(before) = Before::of_former(folder.path(), None)? else { return Ok(()) };
    let why = of_former(&before);
    let ended = runtime()?.block_on(async {
        let bus = Bus::connect(&before.systemd).await?;
        let _lock = folder.take_lock().map_err(|e| format!("taking its lock: {e}"))?;
        put_other_back(&bus, folder.path(), before, limit.into()).await
    });
    ended.map_err(why)
}

struct Mover<'a> {
    bus: Bus,
    unit: String,
    /// The name in the content, which may be an alias.
    called: String,
    content: Service,
    task: &'a Task,
    /// Runs `ready`.
    commands: Arc<Commands>,
    /// The time limit, a little before the runner ends the process.
    limit: Instant,
    begun: SystemTime,
}

impl Mover<'_> {
    async fn go(&self) -> Result<(), String> {
        let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
        let work = async {
            self.end_former().await?;
            let unit = self.bus.look(&self.unit).await?.id;
            if is_own(&unit) {
                return Err(refusal(&unit));
            }
            match Before::read(&self.task.folder)?.filter(|before| !before.restored) {
                Some(mut before) => before.settle_links(&self.task.folder)?,
                None => self.take_over().await?,
            }
            match self.task.goal {
                Goal::Start => self.start().await,
                Goal::Reload => self.reload().await,
                Goal::Adjust => self.adjust().await,
                Goal::Stop => self.stop().await,
            }
        };
        tokio::select! {
            done = work => done,
            _ = terminate.recv() => {
                if self.task.goal == Goal::Start {
                    // A cancelled start must not end like a wanted start.
                    let _ = self.bus.job("StopUnit", &self.unit, Instant::now() + AFTERWARDS).await;
                }
                Err("cancelled".to_owned())
            }
        }
    }

    /// Stops the unit of an earlier content, and restores its original state.
    async fn end_former(&self) -> Result<(), String> {
        let Some(before) = Before::of_former(&self.task.folder, Some(&self.unit))? else { return Ok(()) };
        let why = of_former(&before);
        put_other_back(&self.bus, &self.task.folder, before, self.limit).await.map_err(why)
    }

    /// Takes over the notes of another change object of this unit that has just departed: the original state is
    /// restored when this change object departs.
    async fn take_over(&self) -> Result<(), String> {
        let own = &self.task.folder;
        let entries =
            own.parent().and_then(|services| std::fs::read_dir(services).ok()).into_iter().flatten().flatten();
        for folder in entries.map(|entry| entry.path()).filter(|folder| folder != own) {
            let service = ServiceFolder::new(folder.clone());
            // The owner of an unreadable note reports the error.
            let concerns = || {
                let theirs = Before::read(&folder).ok().flatten();
                theirs.is_some_and(|theirs| match theirs.restored {
                    true => theirs.that_ran().contains(&self.unit),
                    false => theirs.unit == self.unit && service.departure().is_some(),
                })
            };
            if !concerns() {
                continue;
            }
            // A departure that restores the state holds the lock.
            let _lock = loop {
                match service.take_lock() {
                    Ok(lock) => break lock,
                    Err(error) if Instant::now() >= self.limit => return Err(format!("{}: {error}", folder.display())),
                    Err(_) => sleep(LOOK).await,
                }
            };
            if concerns() {
                hand_over(&folder, own, &self.unit)?;
            }
        }
        Ok(())
    }

    async fn start(&self) -> Result<(), String> {
        let found = self.bus.look(&self.unit).await?;
        let files = self.content.files(&self.task.working_folder)?;
        let identity = identity(&self.content, &files, self.task.rests_on.as_deref());
        self.unmask(&found, &files).await?;
        let state = self.apply(&found, &files).await?;
        self.can_start(&state)?;
        if self.bus.service(&self.unit).await.ends_by_itself() {
            return Err(self.ends_by_itself(&state));
        }
        if self.bus.elapses_for_good(&self.unit).await {
            return Err(format!(
                "{} is not started: it elapses once and is inactive then (RemainAfterElapse=no, and neither OnCalendar= nor \
                 OnUnitActiveSec=), so it is never up and would run its job again and again; take RemainAfterElapse=no out",
                self.unit
            ));
        }
        let current = Started::read(&self.task.folder).is_some_and(|started| {
            started.identity == identity && started.invocation == state.invocation && !state.needs_reload
        });
        if state.runs() && current && configuration(&state).0 == self.recorded_configuration() {
            // Started by an earlier attempt.
            return self.become_ready(&identity).await;
        }
        if state.active == "failed" {
            self.bus.reset_failed(&self.unit).await;
        }
        // `StartUnit` would wait for an automatic restart by systemd.
        let method = if state.runs() || state.restarts() { "RestartUnit" } else { "StartUnit" };
        if !state.runs() && !state.moves() {
            let noted = Before::read(&self.task.folder)?.map(|before| before.others_ran).unwrap_or_default();
            start_triggers(&self.bus, &state, &noted, self.limit).await?;
        }
        let ran = stop_served(&self.bus, &state, &self.task.wanted, self.limit).await?;
        let started = match self.bus.job(method, &self.unit, self.limit).await {
            Ok(()) => self.become_ready(&identity).await,
            Err(why) => Err(self.explain(why).await),
        };
        let again = start_again(&self.bus, &ran, self.limit).await;
        let started = started.and(again);
        if let Err(why) = started {
            // A unit that is not ready must not look as if it were up.
            let stopped = self.bus.job("StopUnit", &self.unit, self.limit + self.grace()).await;
            let stopped = match stopped {
                Ok(()) => self.mask_if_wanted().await,
                failed => failed,
            };
            return Err(stopped.err().map_or(why.clone(), |still| format!("{why}; stopping it again: {still}")));
        }
        Ok(())
    }

    async fn reload(&self) -> Result<(), String> {
        let found = self.bus.look(&self.unit).await?;
        if !found.runs() || self.content.on_change != OnChange::Reload {
            return self.start().await;
        }
        let files = self.content.files(&self.task.working_folder)?;
        let state = self.apply(&found, &files).await?;
        if !state.can_reload {
            return Err(format!(
                "{} can't be reloaded: it has no ExecReload; take `on_change: reload` out, or add it in a drop-in",
                self.unit
            ));
        }
        if let Err(why) = self.bus.job("ReloadUnit", &self.unit, self.limit).await {
            return Err(self.explain(format!("reload: {why}")).await);
        }
        self.become_ready(&identity(&self.content, &files, self.task.rests_on.as_deref())).await
    }

    /// Corrects differences that need no stop.
    async fn adjust(&self) -> Result<(), String> {
        let found = self.bus.look(&self.unit).await?;
        if !found.runs() {
            return Err(format!("{} does not run any more", self.unit));
        }
        self.note(&found, [].into_iter())?;
        if !unread_of(&self.bus, &found).await.is_empty() {
            self.bus.reload().await?;
        }
        self.set_enablement(&found).await
    }

    async fn stop(&self) -> Result<(), String> {
        let found = self.bus.look(&self.unit).await?;
        let leaves = self.task.leaving;
        let files = if leaves { UnitFiles::new() } else { self.content.files(&self.task.working_folder)? };
        self.note(&found, [].into_iter())?;
        let started = Started::read(&self.task.folder);
        let run_by_a_trigger = self.task.rests_down
            && !leaves
            && is_run_by_a_trigger(&found, &self.content, &self.task.triggers, started.as_ref());
        if !run_by_a_trigger {
            if found.runs() || found.moves() {
                if leaves {
                    self.stop_triggers(&found).await?;
                }
                self.stop_it().await?;
            }
            self.bus.reset_failed(&self.unit).await;
        }
        Started::remove(&self.task.folder);
        let mut state = self.bus.look(&self.unit).await?;
        let runs_again = !run_by_a_trigger && (state.runs() || state.moves());
        if runs_again && !self.task.rests_down && self.stop_triggers(&state).await? {
            self.stop_it().await?;
            state = self.bus.look(&self.unit).await?;
        }
        if !run_by_a_trigger && (state.runs() || state.moves()) {
            return Err(self.still_runs(&state));
        }
        if leaves {
            let Some(mut before) = Before::read(&self.task.folder)? else { return Ok(()) };
            let back = put_all_back(&self.bus, &self.task.folder, &mut before).await;
            back.map_err(|why| format!("restoring the original state: {why}"))?;
            return if before.that_ran().is_empty() { Before::remove(&self.task.folder) } else { Ok(()) };
        }
        if self.task.rests_down {
            self.unmask(&state, &files).await?;
            self.apply(&state, &files).await?;
        }
        if run_by_a_trigger && serves_a_socket(&found) {
            // Its files come first: the next connection to the socket may start it at once.
            self.bus.job("StopUnit", &self.unit, self.limit).await.map_err(|why| format!("stop: {why}"))?;
        }
        self.mask_if_wanted().await
    }

    async fn stop_it(&self) -> Result<(), String> {
        match self.bus.job("StopUnit", &self.unit, self.limit).await {
            Ok(()) => Ok(()),
            Err(why) => Err(self.explain(format!("stop: {why}")).await),
        }
    }

    /// Stops sockets outside of the model that would start the unit again at once. They run again with its next start, or
    /// after its departure. Returns whether there was one.
    async fn stop_triggers(&self, found: &UnitState) -> Result<bool, String> {
        let triggers = outside_triggers(&self.bus, found, &self.task.triggers).await?;
        if triggers.is_empty() {
            return Ok(false);
        }
        let mut before = self.note(found, [].into_iter())?;
        before.others_ran.extend(triggers.iter().cloned());
        before.write(&self.task.folder)?;
        for name in triggers {
            let stopped = self.bus.job("StopUnit", &name, self.limit).await;
            stopped.map_err(|why| format!("stopping {name}, which starts {} again: {why}", self.unit))?;
        }
        Ok(true)
    }

    /// Masks a stopped unit if the content says so, even before its package is installed.
    async fn mask_if_wanted(&self) -> Result<(), String> {
        let found = self.bus.look(&self.unit).await?;
        if self.content.mask != Some(true) || found.is_masked() {
            return Ok(());
        }
        self.note(&found, [self.unit.as_str()].into_iter())?;
        self.bus.mask(&self.unit).await
    }

    /// Removes a mask that is ours, or that the content does not want.
    async fn unmask(&self, found: &UnitState, files: &UnitFiles) -> Result<(), String> {
        if !found.is_masked() {
            return Ok(());
        }
        let goes_down = self.task.goal == Goal::Stop;
        let unwanted = match self.content.mask {
            Some(while_down) => !(while_down && goes_down),
            None => files.contains_key(&self.unit) || self.masked_by_us()?,
        };
        if !unwanted && goes_down {
            return Ok(());
        }
        if !unwanted {
            return Err(format!(
                "{0} is masked by an administrator of this host; `systemctl unmask {0}`, or write `mask: false`",
                self.unit
            ));
        }
        self.note(found, [self.unit.as_str()].into_iter())?;
        for runtime in [false, true] {
            self.changing_links(self.bus.unmask(&self.unit, runtime)).await?;
        }
        self.bus.reload().await
    }

    /// Whether the unit had no mask originally.
    fn masked_by_us(&self) -> Result<bool, String> {
        let before = Before::read(&self.task.folder)?.filter(|before| !before.restored);
        let was = before.and_then(|mut before| before.files.remove(&self.unit));
        Ok(was.is_some_and(|was| !is_mask(&was)))
    }

    /// Brings files and enablement into the desired form, and returns the new properties.
    async fn apply(&self, found: &UnitState, files: &UnitFiles) -> Result<UnitState, String> {
        let before = self.note(found, files.keys().map(String::as_str))?;
        let units = &self.task.systemd.units;
        let mut changed = false;
        for (name, was) in before.once_ours(&self.content).filter(|(name, _)| !files.contains_key(*name)) {
            changed |= put_back(&units.join(name), was).map_err(|e| format!("{name}: {e}"))?;
        }
        for (name, text) in files {
            changed |= write_text(&units.join(name), text).map_err(|e| format!("{name}: {e}"))?;
        }
        // Read again: an earlier attempt may have written files without a reload.
        let mut state = self.bus.look(&self.unit).await?;
        if changed || state.needs_reload || state.load == "not-found" || !unread_of(&self.bus, &state).await.is_empty()
        {
            self.bus.reload().await?;
            state = self.bus.look(&self.unit).await?;
        }
        if state.is_there() {
            self.set_enablement(&state).await?;
        }
        self.bus.look(&self.unit).await
    }

    async fn set_enablement(&self, state: &UnitState) -> Result<(), String> {
        let enabled = state.file_state.starts_with("enabled");
        let before = Before::read(&self.task.folder)?;
        let otherwise = before.as_ref().is_some_and(|before| before.is_enabled_otherwise(state));
        match self.content.enabled {
            Some(true) if state.file_state != "enabled" || otherwise => {
                if let Some(links) = before.filter(|_| otherwise).and_then(|before| before.links) {
                    links.remove_made()?;
                }
                self.enable(state).await?;
            }
            Some(false) if enabled => {
                for runtime in [false, true] {
                    self.changing_links(self.bus.disable(&self.unit, runtime)).await?;
                }
            }
            Some(_) | None => return Ok(()),
        }
        self.bus.reload().await
    }

    async fn enable(&self, state: &UnitState) -> Result<(), String> {
        let mut installs = false;
        self.changing_links(async {
            let (says_how, changes) = self.bus.enable(&self.unit, false).await?;
            installs = says_how;
            Ok(changes)
        })
        .await?;
        if !installs {
            return Err(no_section(&self.unit));
        }
        let Some(mut before) = Before::read(&self.task.folder)? else { return Ok(()) };
        if let Some(links) = &mut before.links {
            links.enabled_with = Some(install_section(state));
        }
        before.write(&self.task.folder)
    }

    /// Calls systemd to change links, and notes their original targets. The caller has written the note before.
    async fn changing_links(&self, call: impl Future<Output = Result<Changes, String>>) -> Result<(), String> {
        let (folder, systemd) = (&self.task.folder, &self.task.systemd);
        let mut before = Before::read(folder)?.ok_or_else(|| "the original state is not noted".to_owned())?;
        let all = all_links(systemd);
        if let Some(links) = &mut before.links {
            links.pending = Some(all.clone());
            before.write(folder)?;
        }
        let changed = places(&call.await?);
        keep_linked(systemd, &all, &changed)?;
        let files = before.places();
        if let Some(links) = &mut before.links {
            links.note(&all, &changed, &files);
            before.write(folder)?;
        }
        Ok(())
    }

    /// Notes the original state once, and the content of places that are about to be written.
    fn note<'n>(&self, found: &UnitState, names: impl Iterator<Item = &'n str>) -> Result<Before, String> {
        let before = Before::read(&self.task.folder)?;
        let mut ran = before.as_ref().map(Before::that_ran).unwrap_or_default();
        let mut before = before.filter(|b| !b.restored && b.unit == self.unit).unwrap_or_else(|| {
            let runs = found.runs() || found.active == "activating";
            let ran_before = ran.remove(&self.unit);
            let mut before = self.before(found, runs || ran_before);
            before.others_ran = ran;
            before
        });
        before.note(&self.task.folder, names)?;
        Ok(before)
    }

    fn before(&self, found: &UnitState, ran: bool) -> Before {
        let mut before = Before::new(&self.unit, &self.task.systemd, &found.file_state, ran);
        before.called = Some(self.called.clone()).filter(|called| *called != self.unit);
        before
    }

    fn can_start(&self, state: &UnitState) -> Result<(), String> {
        match state.load.as_str() {
            "loaded" => Ok(()),
            "not-found" => Err(format!(
                "there is no unit {}; is its package installed? Let the unit `require` the package, or \
                 give the `unit_file`",
                self.unit
            )),
            load => Err(format!("systemd can't use {}: {load}: {}", self.unit, state.load_error)),
        }
    }

    /// Waits until it is ready and has run for `settle`, and notes this start. If systemd restarted it meanwhile, it is
    /// not up, even if `ready` succeeds.
    async fn become_ready(&self, identity: &str) -> Result<(), String> {
        let mut attempts = Attempts::of("ready");
        let mut is_ready = self.content.ready.is_none();
        let mut first: Option<(Run, Instant)> = None;
        loop {
            let state = self.bus.look(&self.unit).await?;
            let run = Run { invocation: state.invocation.clone(), restarts: self.restarts().await };
            if !state.runs() && !state.moves() || state.restarts() {
                return Err(self.explain("it ended before it was ready".to_owned()).await);
            }
            if let Some((ended, _)) = first.as_ref().filter(|(first, _)| *first != run) {
                let why = "it ended before it was ready, and systemd started it again".to_owned();
                return Err(explain_run(&self.bus, &self.unit, &ended.invocation, why).await);
            }
            if state.runs() {
                let (_, since) = first.get_or_insert_with(|| (run, Instant::now()));
                if is_ready && since.elapsed() >= self.content.settle.0 {
                    let (configuration, _) = configuration(&state);
                    return Started::new(identity, configuration, state.invocation).write(&self.task.folder);
                }
            }
            if Instant::now() >= self.limit {
                let within = Duration::from_millis(self.task.timeout_ms);
                let why = format!("it was not ready within three quarters of {within:?}; it is {}", state.active);
                return Err(self.explain(why + &attempts.words()).await);
            }
            match self.content.ready.as_ref().filter(|_| !is_ready && attempts.is_due()) {
                Some(command) => match self.ask(command).await {
                    Ok(()) => is_ready = true,
                    Err(why) => attempts.failed(why),
                },
                None => sleep(LOOK).await,
            }
        }
    }

    async fn restarts(&self) -> u32 {
        self.bus.service(&self.unit).await.restarts
    }

    /// Runs `ready` in another thread, so that signals are still handled.
    async fn ask(&self, command: &Command) -> Result<(), String> {
        let (commands, command, limit) = (Arc::clone(&self.commands), command.clone(), self.limit.into_std());
        beside(move || commands.run(&command, limit)).await.unwrap_or_else(|lost| Err(lost.to_string()))
    }

    async fn explain(&self, why: String) -> String {
        explain(&self.bus, &self.unit, self.begun, why).await
    }

    /// Why a unit whose work ends is not started.
    fn ends_by_itself(&self, state: &UnitState) -> String {
        let timers: Vec<&str> =
            state.triggered_by.iter().map(String::as_str).filter(|unit| unit.ends_with(".timer")).collect();
        let by = if timers.is_empty() { "a timer".to_owned() } else { timers.join(", ") };
        format!(
            "{} is not started: its work ends (Type=oneshot without RemainAfterExit=yes), so it is never up; add \
             RemainAfterExit=yes in a drop-in, or, if {by} is to start it, write `preferred: down` on its change object",
            self.unit
        )
    }

    fn still_runs(&self, state: &UnitState) -> String {
        let again = match state.triggered_by.as_slice() {
            [] => String::new(),
            by => format!("; {} may have started it again: stop that too, or write `mask: true`", by.join(", ")),
        };
        format!("{} was stopped, but is {}{again}", self.unit, state.active)
    }

    fn recorded_configuration(&self) -> String {
        Started::read(&self.task.folder).map(|s| s.configuration).unwrap_or_default()
    }

    fn grace(&self) -> Duration {
        Duration::from_millis(self.task.grace_ms)
    }
}

/// Identifies a run of a unit.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    invocation: String,
    /// The number of automatic restarts by systemd.
    restarts: u32,
}

/// A failure with the end of the unit's processes and the last output: of its run or, without a run, since the
/// transition began.
async fn explain(bus: &Bus, unit: &str, begun: SystemTime, why: String) -> String {
    let state = bus.look(unit).await.unwrap_or_default();
    let has_run = state.invocation.bytes().any(|b| b != b'0');
    let said = last_words_of(unit, &state.invocation, (!has_run).then_some(begun)).await;
    told(unit, &why, &bus.service(unit).await, &said)
}

/// Like [`explain`], for a run after which systemd has restarted the unit.
async fn explain_run(bus: &Bus, unit: &str, invocation: &str, why: String) -> String {
    let service = bus.service(unit).await;
    let said = last_words_of(unit, invocation, None).await;
    let service = match ending(invocation).await {
        Some(ending) => service.with_run_before(ending),
        None => service,
    };
    told(unit, &why, &service, &said)
}

fn told(unit: &str, why: &str, service: &ServiceState, said: &str) -> String {
    let how = service.how();
    let _ = writeln!(std::io::stderr(), "{said}");
    let how = if how.is_empty() { how } else { format!(" ({how})") };
    format!("{unit}: {why}{how}{}", last_words(said))
}
