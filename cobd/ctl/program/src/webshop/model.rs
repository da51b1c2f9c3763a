//! The model of the example `webshop`, inside this program, so that the demo works from any folder.
//!
//! The written model is `examples/webshop` with other values: the program that acts as the servers, the folder of the
//! configuration, free ports, and for its second version another price.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

const MODEL: &str = include_str!("../../../../../examples/webshop/model.yaml");
/// Names, permission bits and contents.
const SCRIPTS: [(&str, u32, &str); 4] = [
    ("check.sh", 0o755, include_str!("../../../../../examples/webshop/check.sh")),
    ("write.sh", 0o755, include_str!("../../../../../examples/webshop/write.sh")),
    ("remove.sh", 0o755, include_str!("../../../../../examples/webshop/remove.sh")),
    ("file.sh", 0o644, include_str!("../../../../../examples/webshop/file.sh")),
];

/// A version of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// The unchanged example.
    First,
    /// The same with another price in the configuration of the database.
    Second,
}

impl Version {
    /// The price that the database answers with.
    #[must_use]
    pub(crate) fn price(self) -> u32 {
        match self {
            Self::First => 10,
            Self::Second => 12,
        }
    }
}

/// Different ports of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ports {
    /// The ports of the daemons of n1, n2 and n3.
    pub(crate) hosts: [u16; 3],
    /// The port of the database.
    pub(crate) db: u16,
    /// The ports of the application servers of n2 and n3.
    pub(crate) apps: [u16; 2],
    /// The port of the load balancer.
    pub(crate) lb: u16,
}

impl Default for Ports {
    /// The ports of the example.
    fn default() -> Self {
        Self { hosts: [7271, 7272, 7273], db: 7411, apps: [7412, 7413], lb: 7410 }
    }
}

impl Ports {
    /// The address for customers.
    #[must_use]
    pub(crate) fn shop(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.lb).into()
    }

    fn all(&self) -> [u16; 7] {
        let Self { hosts: [n1, n2, n3], db, apps: [app2, app3], lb } = *self;
        [n1, n2, n3, db, app2, app3, lb]
    }
}

/// Writes the model into `dir`, over an earlier version, and returns the path of its file. `program` acts as the
/// servers; the database's configuration is in `dir` too.
///
/// # Errors
/// If a file can't be written, or a path is not UTF-8.
pub(crate) fn write_model(dir: &Path, program: &Path, ports: &Ports, version: Version) -> io::Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let text = text(program, &dir.join("run"), ports, version)?;
    for (name, mode, content) in SCRIPTS.iter().copied().chain([("model.yaml", 0o644, text.as_str())]) {
        // Write a temporary file, then rename it: a concurrent reader always finds a complete file.
        let (new, place) = (dir.join(format!("{name}.new")), dir.join(name));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&new)?;
        file.write_all(content.as_bytes())?;
        fs::rename(new, place)?;
    }
    Ok(dir.join("model.yaml"))
}

fn text(program: &Path, folder: &Path, ports: &Ports, version: Version) -> io::Result<String> {
    // A JSON string is a YAML string.
    let quoted = |path: &Path| {
        let text = path.to_str().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path is not UTF-8"))?;
        Ok::<_, io::Error>(serde_json::Value::from(text).to_string())
    };
    let mut swaps = vec![
        ("program: cobctl ".to_owned(), format!("program: {} ", quoted(program)?)),
        ("folder: /tmp/cob-webshop ".to_owned(), format!("folder: {} ", quoted(folder)?)),
        (format!("price: {}\n", Version::First.price()), format!("price: {}\n", version.price())),
    ];
    for (old, new) in Ports::default().all().iter().zip(ports.all()) {
        swaps.push((format!("127.0.0.1:{old}"), format!("127.0.0.1:{new}")));
    }
    Ok(swap(MODEL, &swaps))
}

/// Replaces in a single pass, so that inserted text is not replaced again.
fn swap(text: &str, swaps: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let next = swaps.iter().filter_map(|(old, new)| Some((rest.find(old.as_str())?, old, new))).min();
        let Some((at, old, new)) = next else { break };
        out.push_str(&rest[..at]);
        out.push_str(new);
        rest = &rest[at + old.len()..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use cobgen::make::{After, make};

    use super::*;

    fn made(path: &Path) -> cob_types::Generation {
        let made = make(path, &After::default());
        let told = cobgen::diagnostic::render(&made.diagnostics, &made.sources, false);
        assert_eq!(told, "");
        made.assembled.expect("a generation").generation
    }

    #[test]
    fn the_model_is_that_of_the_example() {
        let dir = tempfile::tempdir().expect("a folder");
        let default = text(Path::new("cobctl"), Path::new("/tmp/cob-webshop"), &Ports::default(), Version::First);
        let unquoted = default
            .expect("UTF-8")
            .replace("\"cobctl\" ", "cobctl ")
            .replace("\"/tmp/cob-webshop\" ", "/tmp/cob-webshop ");
        assert_eq!(unquoted, MODEL);
        let generation =
            made(&write_model(dir.path(), Path::new("/bin/x"), &Ports::default(), Version::First).expect("written"));
        let cobs: Vec<&str> = generation.bundles.values().flat_map(|b| b.cobs.keys()).map(|id| id.as_str()).collect();
        assert_eq!(cobs, ["n1/db/config", "n1/db/server", "n2/app/server", "n3/app/server", "n3/lb/server"]);
    }

    #[test]
    fn program_folder_and_ports_reach_the_contents() {
        let dir = tempfile::tempdir().expect("a folder");
        // Each port is the default port of another server.
        let ports = Ports { hosts: [7412, 7271, 7410], db: 7413, apps: [7411, 7272], lb: 7273 };
        let program = Path::new("/opt/a \"b\"/cobctl");
        let generation = made(&write_model(dir.path(), program, &ports, Version::First).expect("written"));
        let address = |host: &str| generation.manifest.hosts[host].address.clone().expect("there");
        assert_eq!(["n1", "n2", "n3"].map(address), [7412, 7271, 7410].map(|p| format!("tcp://127.0.0.1:{p}")));
        let start = |id: &str| {
            let cob = generation.bundles.values().find_map(|b| b.cobs.get(id)).expect("there");
            let content: serde_json::Value = serde_json::from_str(&cob.content).expect("JSON");
            let words = content["start"].as_array().expect("a list").iter();
            words.map(|w| w.as_str().expect("a text").to_owned()).collect::<Vec<_>>()
        };
        let conf = dir.path().join("run/db.conf");
        let conf = conf.to_str().expect("UTF-8");
        let program = program.to_str().expect("UTF-8");
        assert_eq!(start("n1/db/server"), [program, "__webshop", "db", "--listen", "127.0.0.1:7413", "--config", conf]);
        assert_eq!(start("n3/app/server")[3..], ["--listen", "127.0.0.1:7272", "--db", "127.0.0.1:7413"]);
        assert_eq!(
            start("n3/lb/server")[3..],
            ["--listen", "127.0.0.1:7273", "--apps", "127.0.0.1:7411,127.0.0.1:7272"]
        );
        for id in ["n1/db/server", "n2/app/server", "n3/lb/server"] {
            let role = super::super::Role::parse(start(id).split_off(2)).expect("understood");
            assert!(!matches!(role, super::super::Role::Ask(_)), "{id}");
        }
    }

    #[test]
    fn the_two_versions_differ_only_in_the_configuration() {
        let dir = tempfile::tempdir().expect("a folder");
        let [one, two] = [Version::First, Version::Second].map(|version| {
            made(&write_model(dir.path(), Path::new("/bin/x"), &Ports::default(), version).expect("written"))
        });
        let difference = cob_forecast::diff(&one, &two);
        assert_eq!(difference.changed.keys().map(|id| id.as_str()).collect::<Vec<_>>(), ["n1/db/config"]);
        let told = difference.to_string();
        assert!(told.contains("-price = 10\n") && told.contains("+price = 12\n"), "{told}");
        assert!(difference.added.is_empty() && difference.removed.is_empty() && difference.kinds_changed.is_empty());
    }
}
