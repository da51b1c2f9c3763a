//! Names for the numbers with which processes end: signals, and the exit statuses that systemd returns before it
//! executes a program.

/// Signals by their numbers on Linux. Real-time signals have no names.
const SIGNALS: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The exit statuses of systemd.exec(5), and the likely cause.
const STEPS: [(i32, &str, &str); 44] = [
    (200, "CHDIR", "the folder of WorkingDirectory= cannot be entered"),
    (201, "NICE", "Nice= cannot be set"),
    (202, "FDS", "file descriptors cannot be passed on"),
    (203, "EXEC", "the program cannot be executed: look at its path, its mode and its first line"),
    (204, "MEMORY", "there is not enough memory"),
    (205, "LIMITS", "a resource limit (Limit…=) cannot be set"),
    (206, "OOM_ADJUST", "OOMScoreAdjust= cannot be set"),
    (207, "SIGNAL_MASK", "the signal mask cannot be set"),
    (208, "STDIN", "StandardInput= cannot be set up"),
    (209, "STDOUT", "StandardOutput= cannot be set up"),
    (210, "CHROOT", "RootDirectory= cannot be entered"),
    (211, "IOPRIO", "the I/O priority cannot be set"),
    (212, "TIMERSLACK", "TimerSlackNSec= cannot be set"),
    (213, "SECUREBITS", "SecureBits= cannot be set"),
    (214, "SETSCHEDULER", "CPU scheduling cannot be set"),
    (215, "CPUAFFINITY", "CPUAffinity= cannot be set"),
    (216, "GROUP", "the group of Group= or SupplementaryGroups= is not there"),
    (217, "USER", "the user of User= is not there"),
    (218, "CAPABILITIES", "capabilities cannot be dropped or set"),
    (219, "CGROUP", "the control group cannot be set up"),
    (220, "SETSID", "a new session cannot be made"),
    (221, "CONFIRM", "an administrator refused the start at the console"),
    (222, "STDERR", "StandardError= cannot be set up"),
    (224, "PAM", "PAMName= cannot be set up"),
    (225, "NETWORK", "the network namespace cannot be set up"),
    (
        226,
        "NAMESPACE",
        "the file system view cannot be set up: look whether the folders of ReadWritePaths= and the like are there",
    ),
    (227, "NO_NEW_PRIVILEGES", "NoNewPrivileges= cannot be set"),
    (228, "SECCOMP", "a system call filter cannot be set"),
    (229, "SELINUX_CONTEXT", "SELinuxContext= cannot be set"),
    (230, "PERSONALITY", "Personality= cannot be set"),
    (231, "APPARMOR_PROFILE", "AppArmorProfile= cannot be set"),
    (232, "ADDRESS_FAMILIES", "RestrictAddressFamilies= cannot be set"),
    (233, "RUNTIME_DIRECTORY", "RuntimeDirectory= cannot be made"),
    (235, "CHOWN", "a socket or folder cannot be given to its owner"),
    (236, "SMACK_PROCESS_LABEL", "SmackProcessLabel= cannot be set"),
    (237, "KEYRING", "the kernel keyring cannot be set up"),
    (238, "STATE_DIRECTORY", "StateDirectory= cannot be made"),
    (239, "CACHE_DIRECTORY", "CacheDirectory= cannot be made"),
    (240, "LOGS_DIRECTORY", "LogsDirectory= cannot be made"),
    (241, "CONFIGURATION_DIRECTORY", "ConfigurationDirectory= cannot be made"),
    (242, "NUMA_POLICY", "NUMAPolicy= cannot be set"),
    (243, "CREDENTIALS", "a credential (LoadCredential=, SetCredential=) cannot be loaded"),
    (244, "BPF", "a BPF program cannot be attached"),
    (245, "KSM", "MemoryKSM= cannot be set"),
];

/// A signal with its name: `signal 9 (SIGKILL)`.
pub(crate) fn signal(number: i32) -> String {
    let name = usize::try_from(number).ok().and_then(|number| SIGNALS.get(number.checked_sub(1)?));
    name.map_or_else(|| format!("signal {number}"), |name| format!("signal {number} ({name})"))
}

/// The exit status of a program started by systemd: `exit status 203/EXEC, the program …`.
pub(crate) fn exit_status(number: i32) -> String {
    match STEPS.iter().find(|(status, ..)| *status == number) {
        Some((_, name, what)) => format!("exit status {number}/{name}, {what}"),
        None => format!("exit status {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_and_exit_statuses_are_shown_with_their_names() {
        let signals = [(1, "signal 1 (SIGHUP)"), (9, "signal 9 (SIGKILL)"), (11, "signal 11 (SIGSEGV)")];
        let more = [(15, "signal 15 (SIGTERM)"), (31, "signal 31 (SIGSYS)"), (34, "signal 34"), (0, "signal 0")];
        for (number, words) in signals.into_iter().chain(more).chain([(-1, "signal -1"), (32, "signal 32")]) {
            assert_eq!(signal(number), words);
        }
        assert_eq!(exit_status(4), "exit status 4");
        assert!(exit_status(203).starts_with("exit status 203/EXEC, the program cannot be executed"));
        assert!(exit_status(217).starts_with("exit status 217/USER"));
        assert!(STEPS.is_sorted_by_key(|(number, ..)| *number));
    }
}
