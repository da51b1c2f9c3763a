//! The initial environment of actions: small, and the same on every host.

use std::collections::BTreeMap;

/// The variables that actions inherit from the daemon, besides `PATH` and `HOME`.
const PASSED: [&str; 4] = ["USER", "LOGNAME", "TZ", "TMPDIR"];
/// The default if the daemon has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment of every action, before its `COB_` variables:
///
/// | variable | value |
/// | --- | --- |
/// | `PATH` | the daemon's, else the usual six folders |
/// | `HOME` | the daemon's, else `/` |
/// | `LANG` | `C.UTF-8`, so that output can be relied on; no `LC_` variable is passed |
/// | `USER`, `LOGNAME`, `TZ`, `TMPDIR` | the daemon's, where set |
///
/// An action inherits no other variable of the daemon. Its standard input is empty, its mask for new files is 022, and
/// it inherits no open files of the daemon.
#[must_use]
pub fn base_environment() -> BTreeMap<String, String> {
    let own = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let mut all = BTreeMap::from([
        ("PATH".to_owned(), own("PATH").unwrap_or_else(|| DEFAULT_PATH.to_owned())),
        ("HOME".to_owned(), own("HOME").unwrap_or_else(|| "/".to_owned())),
        ("LANG".to_owned(), "C.UTF-8".to_owned()),
    ]);
    all.extend(PASSED.iter().filter_map(|name| own(name).map(|value| ((*name).to_owned(), value))));
    all
}
