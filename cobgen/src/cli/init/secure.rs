//! `cobgen init --secure`: writes a model of hosts with identities, with its keys and its depot.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cob_depot::Depot;
use cob_trust::SecretKey;
use cob_types::HostName;

use super::{Answer, CommandResult, Terminal};
use crate::serve::TRUST;

/// The default port of daemons.
const PORT: u16 = 7077;

/// A host and the address on which it listens.
#[derive(Debug, Clone)]
pub(super) struct Host {
    name: HostName,
    address: SocketAddr,
}

/// The results of `make`.
pub(super) struct Made {
    /// The text of the model.
    pub(super) model: String,
    /// The other files written.
    pub(super) files: Vec<PathBuf>,
}

/// Reads `NAME=IP` or `NAME=IP:PORT`.
pub(super) fn host(text: &str) -> Result<Host, String> {
    let (name, address) = text.split_once('=').ok_or("not of the form NAME=IP or NAME=IP:PORT")?;
    let name = HostName::new(name).map_err(|e| e.to_string())?;
    let ip = |text: &str| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT)).ok();
    let address = address.parse().ok().or_else(|| ip(address));
    let Some(address) = address else { return Err(format!("{name} needs an IP address, not a name")) };
    Ok(Host { name, address })
}

/// Makes the keys and the depot; an existing key is kept.
pub(super) fn make(dir: &Path, hosts: &[Host]) -> io::Result<Made> {
    let names: BTreeSet<_> = hosts.iter().map(|h| &h.name).collect();
    if names.len() != hosts.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a host is named twice; no file was written"));
    }
    let keys = dir.join("keys");
    fs::create_dir_all(dir)?;
    if !keys.exists() {
        fs::DirBuilder::new().mode(0o700).create(&keys)?;
    }
    let key = |name: &str| SecretKey::load_or_create(&keys.join(name)).map_err(io::Error::other);
    let (publisher, operator) = (key("publisher.key")?.public(), key("operator.key")?.public());
    let depot = dir.join("depot");
    drop(Depot::create_or_open(&depot).map_err(io::Error::other)?);
    let trust = depot.join(TRUST);
    let text = format!(
        "# The publishers that new hosts trust, and how many signatures a generation needs.\n\
         trust = [\"{publisher}\"]\nthreshold = 1\n"
    );
    fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&trust)?.write_all(text.as_bytes())?;
    let files = vec![keys.join("publisher.key"), keys.join("operator.key"), depot, trust];
    Ok(Made { model: model(hosts, &operator.to_string()), files })
}

fn model(hosts: &[Host], operator: &str) -> String {
    let entries: String = hosts.iter().map(|h| format!("  {}:\n    address: tcp://{}\n", h.name, h.address)).collect();
    let names: Vec<&str> = hosts.iter().map(|h| h.name.as_str()).collect();
    include_str!("secure.yaml")
        .replace("@HOSTS@", &entries)
        .replace("@OPERATOR@", operator)
        .replace("@FIRST@", names.first().unwrap_or(&""))
        .replace("@ALL@", &names.join(", "))
}

/// Prints the next steps.
pub(super) fn tell(dir: &Path, hosts: &[Host], terminal: &mut Terminal<'_>) -> CommandResult {
    let names: Vec<&str> = hosts.iter().map(|h| h.name.as_str()).collect();
    let (dir, names) = (dir.display(), names.join(" "));
    writeln!(
        terminal.err,
        "Keep {dir}/keys as secret as a password. Next:\n  \
           cobgen serve --depot {dir}/depot --listen tcp://IP:7070      # keep it running\n  \
           cobgen enroll {names} --depot {dir}/depot --server tcp://IP:7070\n  \
           cobd join …                                # on each host, as `enroll` prints it\n  \
           cobgen generate {dir} --depot {dir}/depot\n  \
           systemctl enable --now cobd                # on each host\n  \
           cobctl switch 1 --wait --depot {dir}/depot --key {dir}/keys/operator.key"
    )?;
    Ok(Answer::Done)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn hosts_have_a_name_and_an_address() {
        for (text, address) in [
            ("h1=10.0.0.1", "10.0.0.1:7077"),
            ("h1=10.0.0.1:80", "10.0.0.1:80"),
            ("h1=::1", "[::1]:7077"),
            ("h1=[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(host(text).expect("in order").address.to_string(), address);
        }
        for text in ["h1", "=10.0.0.1", "h/1=10.0.0.1", "h1=name", "h1="] {
            host(text).expect_err(text);
        }
    }

    #[test]
    fn the_way_on_is_told_to_its_end() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let hosts = [host("h1=10.0.0.1").expect("in order")];
        tell(
            Path::new("site"),
            &hosts,
            &mut Terminal { out: &mut out, err: &mut err, colour: false, out_colour: false },
        )
        .expect("told");
        let said = String::from_utf8(err).expect("text");
        let steps =
            ["cobgen serve", "cobgen enroll h1", "cobd join", "cobgen generate site", "systemctl enable --now cobd"];
        let last = "cobctl switch 1 --wait --depot site/depot --key site/keys/operator.key";
        let places: Vec<_> = steps.iter().chain([&last]).map(|step| said.find(step)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{said}");
    }

    #[test]
    fn keys_are_for_their_owner_and_named_where_they_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("site");
        let hosts = [host("h1=10.0.0.1").expect("in order"), host("h2=10.0.0.2").expect("in order")];
        let made = make(&dir, &hosts).expect("made");
        let key = |name: &str| SecretKey::load(&dir.join("keys").join(name)).expect("a key").public().to_string();
        let trust = fs::read_to_string(dir.join("depot/trust.toml")).expect("written");
        assert!(trust.contains(&key("publisher.key")) && !made.model.contains(&key("publisher.key")));
        assert!(made.model.contains(&key("operator.key")) && made.model.contains("address: tcp://10.0.0.2:7077"));
        assert!(!made.model.contains('@'));
        assert_eq!(fs::metadata(dir.join("keys")).expect("there").mode() & 0o777, 0o700);
        make(&dir, &hosts).map(drop).expect_err("nothing is written over");
        make(&folder.path().join("x"), &[hosts[0].clone(), hosts[0].clone()]).map(drop).expect_err("twice");
        assert!(!folder.path().join("x").exists());
    }
}
