//! The kind back end `network`: an interface, configured by systemd-networkd.
//!
//! [`text`] writes the files, [`link`] reads and restores the interfaces of the kernel. systemd-networkd removes the
//! addresses of an interface that no file names any more, so the note of the earlier state has the addresses, too.

mod link;
#[cfg(test)]
mod network_test;
mod text;

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cob_kinds::{Interface, prefixed};
use serde_json::{Value, json};

use self::link::Link;
use super::setting::difference;
use super::{Entry, Spec, place};
use crate::kinds::native::{NOTE, needs_program, run_bounded};

/// The file in the change object's own folder that stays until systemd-networkd has read the files.
const UNREAD: &str = "unread";
/// The key of an interface in a note, before its name.
const LINK: &str = "interface ";
/// The key of the folder that was missing in a note, before the path.
const MADE: &str = "made ";
/// The pause between two looks at an interface.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest wait for systemd-networkd.
const LONGEST: Duration = Duration::from_secs(30);
/// The time after which a failure is about the present files.
const SETTLED: Duration = Duration::from_secs(5);
/// The state of an interface that systemd-networkd does not manage.
const UNMANAGED: &str = "unmanaged";

impl Entry<Interface> {
    fn is_live(&self) -> bool {
        self.host.root().is_none()
    }

    fn name(&self) -> &str {
        &self.content.interface
    }

    /// The interface and its ports.
    fn links(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.content.interface).chain(self.content.ports())
    }

    fn put(&self, file: &str, text: Option<&str>) -> Result<(), String> {
        match text {
            Some(text) => self.host.write(file, text, 0o644),
            None => self.host.remove(file),
        }
    }

    fn set_unread(&self) -> Result<(), String> {
        let path = self.own.join(UNREAD);
        fs::write(&path, "").map_err(|error| format!("{}: {error}", path.display()))
    }

    fn clear_unread(&self) -> Result<(), String> {
        place::remove_all(&self.own.join(UNREAD))
    }

    /// The files of earlier contents that are not files of this content, with their earlier texts.
    fn left_over<'a>(&self, before: Option<&'a Value>) -> Vec<(&'a String, &'a Value)> {
        let files = self.content.files();
        let noted = before.and_then(Value::as_object).into_iter().flatten();
        noted.filter(|(key, _)| key.starts_with('/') && !files.contains(key)).collect()
    }

    /// The desired state of the interface, limited to the keys of the content.
    fn wanted_link(&self) -> Value {
        let content = &self.content;
        let mut wanted = json!({ "addresses": content.addresses, "gateways": content.gateways });
        let routes: Vec<_> = content.routes.iter().map(|route| format!("{} via {}", route.to, route.via)).collect();
        wanted["routes"] = json!(routes);
        wanted["state"] = json!("configured");
        wanted["file"] = json!(Interface::network_file(self.name()));
        if let Some(mtu) = content.mtu {
            wanted["mtu"] = json!(mtu);
        }
        wanted
    }

    /// The interface as it is, limited to the keys of the content.
    fn look_at_link(&self) -> Result<Value, String> {
        let Some(link) = link::find(self.name())? else { return Ok(json!({ "interface": "not there" })) };
        let content = &self.content;
        let has = |text: &&String| {
            prefixed(text).is_some_and(|(address, prefix)| {
                link.addresses.iter().any(|found| (found.address, found.prefix) == (address, prefix))
            })
        };
        let leads = |to: Option<(IpAddr, u8)>, via: &str, metric: Option<u32>| {
            let via = via.parse().ok();
            let is_it = |found: &&link::KernelRoute| found.to() == to && found.gateway == via && via.is_some();
            link.routes.iter().filter(is_it).any(|found| metric.is_none() || found.metric == metric)
        };
        let is_route = |route: &&cob_kinds::Route| leads(prefixed(&route.to), &route.via, route.metric);
        let routes = content.routes.iter().filter(is_route).map(|route| format!("{} via {}", route.to, route.via));
        let gateways: Vec<_> = content.gateways.iter().filter(|via| leads(None, via, None)).collect();
        let (state, file) = status(self.name())?;
        let mut found = json!({
            "addresses": content.addresses.iter().filter(has).collect::<Vec<_>>(),
            "gateways": gateways,
            "routes": routes.collect::<Vec<_>>(),
            "state": state,
            "file": file,
        });
        if content.mtu.is_some() {
            found["mtu"] = json!(link.mtu);
        }
        Ok(found)
    }

    /// Waits until the interface is as desired.
    fn wait(&self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let (found, wanted) = (self.look_at_link()?, self.wanted_link());
            if found == wanted {
                return Ok(());
            }
            // The state may still be of the earlier files.
            let has_failed = found["state"] == "failed" && begun.elapsed() > SETTLED;
            if has_failed || begun.elapsed() > LONGEST.min(self.longest) {
                return Err(format!(
                    "systemd-networkd has not configured {}: {}; `networkctl status {0}` and its journal say more",
                    self.name(),
                    difference(&wanted, Some(&found))
                ));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Some versions of systemd-networkd try without end to give an address of IPv4 its broadcast address.
    fn complete_addresses(&self) -> Result<(), String> {
        let Some(link) = link::find(self.name())? else { return Ok(()) };
        for address in link.addresses.iter().filter(|address| address.broadcast.is_none() && address.prefix < 31) {
            let IpAddr::V4(bits) = address.address else { continue };
            if self.content.addresses.contains(&address.text()) {
                let broadcast = IpAddr::V4((u32::from(bits) | (u32::MAX >> address.prefix)).into());
                link::ip(&["address", "delete", &address.text(), "dev", self.name()])?;
                link::add(self.name(), address, Some(broadcast))?;
            }
        }
        Ok(())
    }

    /// The lines of ifupdown about the interface.
    fn is_of_ifupdown(&self) -> Result<bool, String> {
        let mut texts = vec![self.host.read("/etc/network/interfaces")?];
        let folder = fs::read_dir(self.host.path("/etc/network/interfaces.d")).into_iter().flatten().flatten();
        texts.extend(folder.filter_map(|entry| fs::read_to_string(entry.path()).ok()));
        let is_about = |line: &str| {
            let mut words = line.split_whitespace();
            words.next() == Some("iface") && words.next() == Some(self.name())
        };
        Ok(texts.iter().any(|text| text.lines().any(is_about)))
    }

    /// Why no file of systemd-networkd would have an effect.
    fn is_managed(&self) -> Result<(), String> {
        let name = self.name();
        for (program, package) in [("ip", "iproute2"), ("networkctl", "systemd (systemd-networkd on Fedora)")] {
            needs_program(program, package)?;
        }
        if !is_active("systemd-networkd.service") {
            let other = match is_active("NetworkManager.service") {
                true => "; NetworkManager runs, which the kind `network` does not support",
                false => "",
            };
            return Err(format!(
                "systemd-networkd is not active on this host, and `network` writes its files{other}. Enable and start \
                 it first, with the present addresses in its files, for example by a `service` with \
                 `unit: systemd-networkd.service`"
            ));
        }
        if self.is_of_ifupdown()? {
            return Err(format!(
                "ifupdown configures {name}, too (`iface {name}` in /etc/network/interfaces), and both would undo each \
                 other's work: remove its lines, for example with the kind `line`"
            ));
        }
        for name in self.links().skip(usize::from(self.content.is_virtual())) {
            if !link::exists(name)? {
                return Err(format!(
                    "there is no interface {name} on this host; `networkctl list` shows the interfaces"
                ));
            }
        }
        Ok(())
    }
}

fn is_active(unit: &str) -> bool {
    let ran = run_bounded(Command::new("systemctl").args(["is-active", "--quiet", unit]), b"");
    ran.is_ok_and(|ran| ran.code == Some(0))
}

/// The state of an interface in systemd-networkd, and the file that configures it.
fn status(name: &str) -> Result<(String, Option<String>), String> {
    let mut command = Command::new("networkctl");
    command.args(["--no-pager", "--no-legend", "--lines=0", "status", "--", name]).env("LC_ALL", "C.UTF-8");
    let out = run_bounded(&mut command, b"")?.ok()?;
    let value = |key: &str| {
        let mut lines = out.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':'));
        lines.next().map(|value| value.trim().to_owned())
    };
    // Format: `routable (configured)`.
    let state = value("State").unwrap_or_default();
    let state = state.split_once('(').map(|(_, state)| state.trim_end_matches(')').to_owned());
    Ok((state.unwrap_or_else(|| UNMANAGED.to_owned()), value("Network File").filter(|file| file != "n/a")))
}

fn networkctl(arguments: &[&str]) -> Result<(), String> {
    run_bounded(Command::new("networkctl").args(arguments).env("LC_ALL", "C.UTF-8"), b"")?.ok().map(|_| ())
}

impl Spec for Entry<Interface> {
    fn notes() -> &'static [&'static str] {
        &[NOTE, UNREAD]
    }

    fn target(&self) -> String {
        self.content.interface.clone()
    }

    /// Several change objects may name the same interfaces, and systemd-networkd reads all files at once.
    fn turn(&self) -> Option<&'static str> {
        self.is_live().then_some("network")
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        let mut found = json!({});
        for file in self.content.files() {
            found[&file] = json!(self.host.read_if_there(&file)?);
        }
        for (file, text) in self.left_over(before) {
            let now = json!(self.host.read_if_there(file)?);
            if now != *text {
                found[file] = now;
            }
        }
        if self.own.join(UNREAD).exists() {
            found["unfinished"] = json!(true);
        }
        if self.is_live() {
            found[LINK.trim()] = self.look_at_link()?;
        }
        Ok(Some(found))
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let mut before = json!({});
        for file in self.content.files() {
            before[&file] = json!(self.host.read_if_there(&file)?);
            let real = place::real(&self.host, &file)?;
            before[format!("{MADE}{file}")] = json!(place::missing_folder(&real).map(place::text).transpose()?);
        }
        for name in self.links().filter(|_| self.is_live()) {
            before[format!("{LINK}{name}")] = json!(link::find(name)?);
        }
        Ok(Some(before))
    }

    fn wanted(&self) -> Value {
        let mut wanted = json!({});
        for (file, text) in text::files(&self.content) {
            wanted[file] = json!(text);
        }
        if self.is_live() {
            wanted[LINK.trim()] = self.wanted_link();
        }
        wanted
    }

    fn hindered(&self) -> Result<(), String> {
        if self.is_live() {
            self.is_managed()?;
        }
        let Some(vlan) = &self.content.vlan else { return Ok(()) };
        let below = Interface::network_file(&vlan.on);
        match self.host.inspect(&below)? {
            Some(_) => Ok(()),
            None => Err(format!(
                "{} is a VLAN on {1}, which no change object configures ({below} is missing): add a change object of \
                 the kind `network` for {1}, and let the VLAN require it",
                self.name(),
                vlan.on
            )),
        }
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        self.set_unread()?;
        let netdev = self.content.netdev_file();
        let mut is_changed = false;
        for (file, text) in text::files(&self.content) {
            let found = self.host.read_if_there(&file)?;
            if found.as_ref() == Some(&text) {
                continue;
            }
            is_changed = true;
            // systemd-networkd does not change an interface that exists.
            if file == netdev && found.is_some() && self.is_live() && link::exists(self.name())? {
                link::ip(&["link", "delete", "dev", self.name()])?;
            }
            self.put(&file, Some(&text))?;
        }
        for (file, text) in self.left_over(before) {
            is_changed = true;
            self.put(file, text.as_str())?;
            let port = file.strip_suffix(".network").and_then(|path| path.split("/10-cob-").nth(1));
            if let Some(port) = port.filter(|_| self.is_live())
                && link::exists(port)?
            {
                link::ip(&["link", "set", "dev", port, "nomaster"])?;
            }
        }
        if self.is_live() {
            self.complete_addresses()?;
            networkctl(&["reload"])?;
            if !is_changed && link::exists(self.name())? {
                networkctl(&["reconfigure", self.name()])?;
            }
            self.wait()?;
        }
        self.clear_unread()
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let Some(before) = before else { return Ok(()) };
        let noted = || before.as_object().into_iter().flatten();
        for (file, text) in noted().filter(|(key, _)| key.starts_with('/')) {
            self.put(file, text.as_str())?;
            if let Some(first) = before[format!("{MADE}{file}")].as_str() {
                place::remove_folders(&place::real(&self.host, file)?, first);
            }
        }
        if self.is_live() {
            let links = || noted().filter_map(|(key, link)| Some((key.strip_prefix(LINK)?, link)));
            for (name, link) in links() {
                if link.is_null() && link::exists(name)? {
                    link::ip(&["link", "delete", "dev", name])?;
                }
            }
            let is_managed = is_active("systemd-networkd.service");
            if is_managed {
                networkctl(&["reload"])?;
            }
            for (name, link) in links().filter(|(_, link)| !link.is_null()) {
                let link: Link = serde_json::from_value(link.clone()).map_err(|error| format!("note: {error}"))?;
                if !is_managed || is_let_go(name)? {
                    link.restore(name)?;
                }
            }
        }
        self.clear_unread()
    }
}

/// Whether systemd-networkd has let an interface go; otherwise another file configures it.
fn is_let_go(name: &str) -> Result<bool, String> {
    let limit = Instant::now() + LONGEST;
    while link::exists(name)? {
        match status(name)? {
            (state, _) if state == UNMANAGED => return Ok(true),
            // The file of a stale answer is gone.
            (state, Some(file)) if state == "configured" && Path::new(&file).exists() => return Ok(false),
            _ if Instant::now() > limit => return Ok(false),
            _ => std::thread::sleep(PAUSE),
        }
    }
    Ok(false)
}
