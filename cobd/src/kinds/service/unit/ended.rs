//! What systemd knows of a service besides what it knows of every unit: of which type it is, and how its processes ended.

use std::collections::BTreeMap;

use cob_types::words::count;
use zbus::OwnedVariant;

use crate::run::endings;

/// `siginfo` says that a process has ended by itself, by a signal, or by a signal with a core dump.
const EXITED: i32 = 1;
const KILLED: i32 = 2;
const DUMPED: i32 = 3;
/// The commands of a service beside its main process, by their properties.
const STEPS: [&str; 6] = ["ExecCondition", "ExecStartPre", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost"];

/// A command as systemd tells of it: path, words, whether its failure is ignored, four times, process, code, status.
type Command = (String, Vec<String>, bool, u64, u64, u64, u64, u32, i32, i32);

/// A service as systemd sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServiceState {
    /// `simple`, `oneshot` and so on; empty where the unit is no service.
    pub(super) kind: String,
    /// It counts as running when its processes have ended well.
    pub(super) remains: bool,
    /// How its last run ended, in systemd's word.
    pub(super) result: String,
    /// How often systemd has started it again by itself since somebody has.
    pub(super) restarts: u32,
    main: Ending,
    /// The commands beside the main process that failed.
    failed_steps: Vec<(&'static str, Ending)>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ending {
    code: i32,
    status: i32,
}

impl Ending {
    fn is_failure(self) -> bool {
        match self.code {
            EXITED => self.status != 0,
            KILLED | DUMPED => true,
            _ => false,
        }
    }

    /// As the journal has it: `exited`, `killed` or `dumped`, and a number.
    pub(super) fn of_journal(code: &str, status: &str) -> Option<Self> {
        let code = match code {
            "exited" => EXITED,
            "killed" => KILLED,
            "dumped" => DUMPED,
            _ => return None,
        };
        Some(Self { code, status: status.parse().ok()? })
    }

    fn words(self) -> String {
        match self.code {
            KILLED => endings::signal(self.status),
            DUMPED => format!("{}, core dumped", endings::signal(self.status)),
            _ => endings::exit_status(self.status),
        }
    }
}

impl ServiceState {
    pub(super) fn of(mut all: BTreeMap<String, OwnedVariant>) -> Self {
        fn take<T: TryFrom<OwnedVariant>>(all: &mut BTreeMap<String, OwnedVariant>, name: &str) -> Option<T> {
            T::try_from(all.remove(name)?).ok()
        }
        let mut failed_steps = Vec::new();
        for step in STEPS {
            let commands = take::<Vec<Command>>(&mut all, step).unwrap_or_default();
            let failed = commands.into_iter().filter(|(_, _, ignored, ..)| !ignored);
            let mut endings = failed.map(|(.., code, status)| Ending { code, status });
            failed_steps.extend(endings.find(|ending| ending.is_failure()).map(|ending| (step, ending)));
        }
        Self {
            kind: take(&mut all, "Type").unwrap_or_default(),
            remains: take(&mut all, "RemainAfterExit").unwrap_or(false),
            result: take(&mut all, "Result").unwrap_or_default(),
            restarts: take(&mut all, "NRestarts").unwrap_or(0),
            main: Ending {
                code: take(&mut all, "ExecMainCode").unwrap_or(0),
                status: take(&mut all, "ExecMainStatus").unwrap_or(0),
            },
            failed_steps,
        }
    }

    /// Its work ends, and the unit is inactive then: it can't be up.
    pub(super) fn ends_by_itself(&self) -> bool {
        self.kind == "oneshot" && !self.remains
    }

    /// The same service, of which the run before this one is told: systemd has started it again, and knows it no more.
    pub(super) fn with_run_before(self, main: Ending) -> Self {
        let result = match main.code {
            _ if !main.is_failure() => "success",
            EXITED => "exit-code",
            _ => "signal",
        };
        Self { result: result.to_owned(), main, ..self }
    }

    /// How it ended, in words; empty: well, or not at all.
    pub(super) fn how(&self) -> String {
        let step = self.failed_steps.first().map(|(step, ending)| format!("{step}= ended with {}", ending.words()));
        let ended = || step.clone().or_else(|| self.main.is_failure().then(|| self.main.words()));
        let mut how = match self.result.as_str() {
            "" | "success" => String::new(),
            "exit-code" | "signal" | "core-dump" => ended().unwrap_or_else(|| self.result.clone()),
            result => {
                let meaning = meaning(result);
                let ended = ended().map(|ended| format!(", {ended}")).unwrap_or_default();
                format!("{result}{meaning}{ended}")
            }
        };
        if self.restarts > 0 {
            let times = count(self.restarts, "restart");
            how += &if how.is_empty() { format!("{times} by systemd") } else { format!(", with {times} by systemd") };
        }
        how
    }
}

/// Whether the properties of a timer say that it elapses once and is no longer active then.
pub(super) fn elapses_for_good(mut timer: BTreeMap<String, OwnedVariant>) -> bool {
    fn take<T: TryFrom<OwnedVariant>>(all: &mut BTreeMap<String, OwnedVariant>, name: &str) -> Option<T> {
        T::try_from(all.remove(name)?).ok()
    }
    let remains = take(&mut timer, "RemainAfterElapse").unwrap_or(true);
    let dates = take::<Vec<(String, String, u64)>>(&mut timer, "TimersCalendar").unwrap_or_default();
    let spans = take::<Vec<(String, u64, u64)>>(&mut timer, "TimersMonotonic").unwrap_or_default();
    // These count from what happens once; the others from each run of the unit that the timer starts.
    let once = |base: &str| matches!(base, "OnActiveUSec" | "OnBootUSec" | "OnStartupUSec");
    !remains && dates.is_empty() && !spans.is_empty() && spans.iter().all(|(base, ..)| once(base))
}

/// What a result of systemd means, where its word does not say it.
fn meaning(result: &str) -> &'static str {
    match result {
        "timeout" => ": its time in systemd (TimeoutStartSec=, TimeoutStopSec=, RuntimeMaxSec=) was over",
        "watchdog" => ": it did not report to systemd within WatchdogSec=",
        "start-limit-hit" => ": it was started too often in a short time (StartLimitBurst=)",
        "oom-kill" => ": the kernel ended it for lack of memory",
        "protocol" => ": it did not start as its Type= says (readiness, bus name or PID file)",
        "resources" => ": systemd could not get what the unit needs",
        "exec-condition" => ": ExecCondition= does not hold",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(result: &str, (code, status): (i32, i32)) -> ServiceState {
        ServiceState { result: result.to_owned(), main: Ending { code, status }, ..ServiceState::default() }
    }

    #[test]
    fn the_end_of_a_service_is_told_with_names() {
        let told: [(&str, (i32, i32), &str); 6] = [
            ("success", (EXITED, 0), ""),
            ("exit-code", (EXITED, 4), "exit status 4"),
            ("exit-code", (EXITED, 203), "exit status 203/EXEC, the program cannot be executed"),
            ("signal", (KILLED, 9), "signal 9 (SIGKILL)"),
            ("core-dump", (DUMPED, 11), "signal 11 (SIGSEGV), core dumped"),
            ("timeout", (KILLED, 15), "timeout: its time in systemd"),
        ];
        for (result, main, words) in told {
            let how = state(result, main).how();
            assert!(how.starts_with(words) && (!words.is_empty() || how.is_empty()), "{result}: {how}");
        }
        let step = ServiceState {
            failed_steps: vec![("ExecStartPre", Ending { code: EXITED, status: 1 })],
            restarts: 2,
            ..state("exit-code", (0, 0))
        };
        assert_eq!(step.how(), "ExecStartPre= ended with exit status 1, with 2 restarts by systemd");
        // It runs again, so that systemd itself tells nothing any more of the run that has ended.
        for (code, status, words) in [
            ("killed", "11", "signal 11 (SIGSEGV), with 1 restart by systemd"),
            ("exited", "4", "exit status 4, with 1 restart by systemd"),
            ("exited", "0", "1 restart by systemd"),
        ] {
            let again = ServiceState { restarts: 1, ..state("success", (0, 0)) };
            assert_eq!(again.with_run_before(Ending::of_journal(code, status).expect("known")).how(), words);
        }
        assert_eq!(Ending::of_journal("trapped", "5"), None);
    }
}
