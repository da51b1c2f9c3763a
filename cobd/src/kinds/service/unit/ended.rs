//! Properties of services in systemd, besides the common properties of units: the type, and the end of the processes.

use std::collections::BTreeMap;

use cob_types::words::count;
use zbus::OwnedVariant;

use crate::run::endings;

/// Codes of `siginfo` for the end of a process: by itself, by a signal, or by a signal with a core dump.
const EXITED: i32 = 1;
const KILLED: i32 = 2;
const DUMPED: i32 = 3;
/// The properties with a service's commands besides its main process.
const STEPS: [&str; 6] = ["ExecCondition", "ExecStartPre", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost"];

/// A command in systemd's format: path, words, whether its failure is ignored, four times, process, code, status.
type Command = (String, Vec<String>, bool, u64, u64, u64, u64, u32, i32, i32);

/// The properties of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServiceState {
    /// `simple`, `oneshot` and so on; empty if the unit is no service.
    pub(super) kind: String,
    /// It counts as running after its processes have ended well.
    pub(super) remains: bool,
    /// Systemd's word for the result of its last run.
    pub(super) result: String,
    /// The number of automatic restarts by systemd since the last manual start.
    pub(super) restarts: u32,
    main: Ending,
    /// The failed commands besides the main process.
    failed_steps: Vec<(&'static str, Ending)>,
}

/// The end of a process.
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

    /// Parses the journal's fields: `exited`, `killed` or `dumped`, and a number.
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

    /// Whether its work ends, and the unit is inactive afterwards, so that it can't be up.
    pub(super) fn ends_by_itself(&self) -> bool {
        self.kind == "oneshot" && !self.remains
    }

    /// The same service with the result of its previous run, which systemd has forgotten after a restart.
    pub(super) fn with_run_before(self, main: Ending) -> Self {
        let result = match main.code {
            _ if !main.is_failure() => "success",
            EXITED => "exit-code",
            _ => "signal",
        };
        Self { result: result.to_owned(), main, ..self }
    }

    /// The end as text; empty if it ended well or has not ended.
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

/// Whether a timer elapses only once and is inactive afterwards, according to its properties.
pub(super) fn elapses_for_good(mut timer: BTreeMap<String, OwnedVariant>) -> bool {
    fn take<T: TryFrom<OwnedVariant>>(all: &mut BTreeMap<String, OwnedVariant>, name: &str) -> Option<T> {
        T::try_from(all.remove(name)?).ok()
    }
    let remains = take(&mut timer, "RemainAfterElapse").unwrap_or(true);
    let dates = take::<Vec<(String, String, u64)>>(&mut timer, "TimersCalendar").unwrap_or_default();
    let spans = take::<Vec<(String, u64, u64)>>(&mut timer, "TimersMonotonic").unwrap_or_default();
    // These bases occur once; the other bases repeat with each run of the triggered unit.
    let once = |base: &str| matches!(base, "OnActiveUSec" | "OnBootUSec" | "OnStartupUSec");
    !remains && dates.is_empty() && !spans.is_empty() && spans.iter().all(|(base, ..)| once(base))
}

/// The meaning of a result that systemd's word does not explain.
fn meaning(result: &str) -> &'static str {
    match result {
        "timeout" => ": its time in systemd (TimeoutStartSec=, TimeoutStopSec=, RuntimeMaxSec=) was over",
        "watchdog" => ": it did not report to systemd within WatchdogSec=",
        "start-limit-hit" => ": it was started too often in a short time (StartLimitBurst=)",
        "oom-kill" => ": the kernel ended it for lack of memory",
        "protocol" => ": it did not start as its Type= says (readiness, bus name or PID file)",
        "resources" => ": systemd could not get a resource that the unit needs",
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
    fn the_end_of_a_service_is_described_with_names() {
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
        // Systemd restarted the service, so it no longer knows the end of the previous run.
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
