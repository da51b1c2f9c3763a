//! The unit in which this program runs: a program that stops its own unit can't start it again.

use std::sync::LazyLock;

static OWN: LazyLock<Option<String>> = LazyLock::new(|| {
    // Without control groups the program runs in no unit.
    unit_in(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default())
});

/// Whether the unit with this main name is our own.
pub(super) fn is_own(unit: &str) -> bool {
    OWN.as_deref() == Some(unit)
}

/// The unit in which this program runs; `None` outside of systemd.
pub(in crate::kinds) fn own_unit() -> Option<&'static str> {
    OWN.as_deref()
}

/// Why the unit is not changed.
pub(super) fn refusal(unit: &str) -> String {
    format!(
        "{unit} is the daemon's own unit: a daemon that stops it can't start it again; give its drop-ins with a \
         `file-tree`, and restart it by hand"
    )
}

/// The unit of a process, from its control groups (`number:controllers:path`).
fn unit_in(groups: &str) -> Option<String> {
    let of_systemd = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        ["", "name=systemd"].contains(&controllers).then_some(path)
    });
    // A service's group may have subgroups.
    of_systemd.flat_map(|path| path.split('/')).find(|part| part.ends_with(".service")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_named_by_the_control_group() {
        let unit = |groups: &str| unit_in(groups);
        assert_eq!(unit("0::/system.slice/cobd.service\n").as_deref(), Some("cobd.service"));
        assert_eq!(
            unit("4:memory:/x.service\n1:name=systemd:/system.slice/my-cobd.service/payload\n0::/\n").as_deref(),
            Some("my-cobd.service")
        );
        let users = "0::/user.slice/user-1000.slice/user@1000.service/app.slice/cobd.service\n";
        assert_eq!(unit(users).as_deref(), Some("user@1000.service"));
        for none in ["", "0::/\n", "0::/user.slice/user-0.slice/session-1.scope\n", "nonsense"] {
            assert_eq!(unit(none), None, "{none}");
        }
    }
}
