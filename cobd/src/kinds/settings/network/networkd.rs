//! systemd-networkd: its files for a content, and its work with an interface.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::time::{Instant, SystemTime};

use cob_kinds::{By, Dhcp, Interface, Vlan};
use serde_json::{Value, json};

use super::{HEAD, LONGEST, Lan, PAUSE, Program, is_unit, link, run};
use crate::kinds::native::needs_program;

/// The unit of systemd.
const UNIT: &str = "systemd-networkd.service";
/// The state of an interface that it does not manage.
const UNMANAGED: &str = "unmanaged";

/// The program.
pub(super) struct Networkd;

impl Program for Networkd {
    fn by(&self) -> By {
        By::Networkd
    }

    fn files(&self, content: &Interface) -> Vec<(String, String)> {
        files(content)
    }

    fn expresses(&self, lan: &Lan) -> Result<(), String> {
        let Some(vlan) = &lan.content.vlan else { return Ok(()) };
        let below = By::Networkd.file(&vlan.on);
        match lan.host.inspect(&below)? {
            Some(_) => Ok(()),
            None => Err(format!(
                "{} is a VLAN on {1}, which no change object configures ({below} is missing): add a change object of \
                 the kind `network` for {1}, and let the VLAN require it",
                lan.name(),
                vlan.on
            )),
        }
    }

    fn is_active(&self) -> Result<(), String> {
        if is_unit("is-active", UNIT) {
            return Ok(());
        }
        Err(format!(
            "systemd-networkd is not active on this host. Enable and start it first, with the present addresses in its \
             files, for example by a `service` with `unit: {UNIT}`"
        ))
    }

    fn hindered(&self, _: &Lan) -> Result<(), String> {
        needs_program("networkctl", "systemd (systemd-networkd on Fedora)")
    }

    fn wanted(&self, content: &Interface) -> Value {
        json!({ "state": "configured", "file": By::Networkd.file(&content.interface) })
    }

    fn look(&self, content: &Interface) -> Result<Value, String> {
        let (state, file) = status(&content.interface)?;
        Ok(json!({ "state": state, "file": file }))
    }

    fn apply(&self, lan: &Lan, before: Option<&Value>) -> Result<(), String> {
        let netdev = lan.content.netdev_file();
        // It does not change an interface that exists.
        let redefined = |file: &str, _: &str, _: &str| file == netdev;
        let put = lan.put_files(before, &redefined)?;
        put.left.iter().try_for_each(|port| link::release(port))?;
        complete_addresses(lan)?;
        if !link::exists(lan.name())? {
            make_anew(lan)?;
        }
        networkctl(&["reload"])?;
        if !put.is_changed {
            for name in lan.links() {
                if link::exists(name)? {
                    networkctl(&["reconfigure", name])?;
                }
            }
        }
        lan.wait("systemd-networkd", &format!("networkctl status {}", lan.name()))
    }

    fn restore(&self, lan: &Lan, before: &Value) -> Result<(), String> {
        lan.put_back(before, self.by())?;
        lan.delete_made(before)?;
        let is_managed = self.is_active().is_ok();
        if is_managed {
            networkctl(&["reload"])?;
        }
        for (name, link) in lan.noted_links(before)? {
            if !is_managed || is_let_go(name)? {
                link.restore(name)?;
            }
        }
        Ok(())
    }
}

/// What systemd-networkd does not do by itself for an interface that is gone, or that is defined anew. A port belongs to
/// the definition that was there when its file was read, so the file has to be newer. A VLAN is made by its former
/// definition, and only while the interface below is configured, so it is made here.
fn make_anew(lan: &Lan) -> Result<(), String> {
    for port in lan.content.ports() {
        let path = lan.host.path(&By::Networkd.file(port));
        let touched = File::options().write(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        touched.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    match &lan.content.vlan {
        Some(Vlan { id, on }) if link::exists(on)? => {
            link::ip(&["link", "add", "link", on, "name", lan.name(), "type", "vlan", "id", &id.to_string()]).map(drop)
        }
        Some(_) | None => Ok(()),
    }
}

/// Some versions of systemd-networkd try without end to give an address of IPv4 its broadcast address.
fn complete_addresses(lan: &Lan) -> Result<(), String> {
    let Some(link) = link::find(lan.name())? else { return Ok(()) };
    for address in link.addresses.iter().filter(|address| address.broadcast.is_none()) {
        let Some(broadcast) = link::broadcast(address.address, address.prefix) else { continue };
        if lan.content.addresses.contains(&address.text()) {
            link::ip(&["address", "delete", &address.text(), "dev", lan.name()])?;
            link::add(lan.name(), &address.text(), Some(broadcast))?;
        }
    }
    Ok(())
}

/// The file that configures an interface now. `None`: it does not configure the interface.
pub(super) fn file_of(name: &str) -> Result<Option<String>, String> {
    if Networkd.is_active().is_err() {
        return Ok(None);
    }
    let (state, file) = status(name)?;
    // The file of a stale answer is gone.
    Ok(file.filter(|file| state != UNMANAGED && Path::new(file).exists()))
}

/// The state of an interface, and the file that configures it.
fn status(name: &str) -> Result<(String, Option<String>), String> {
    let out = networkctl(&["--no-pager", "--no-legend", "--lines=0", "status", "--", name])?;
    let value = |key: &str| {
        let mut lines = out.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':'));
        lines.next().map(|value| value.trim().to_owned())
    };
    // Format: `routable (configured)`.
    let state = value("State").unwrap_or_default();
    let state = state.split_once('(').map(|(_, state)| state.trim_end_matches(')').to_owned());
    Ok((state.unwrap_or_else(|| UNMANAGED.to_owned()), value("Network File").filter(|file| file != "n/a")))
}

fn networkctl(arguments: &[&str]) -> Result<String, String> {
    run("networkctl", arguments)?.ok()
}

/// Whether it has let an interface go; otherwise another file configures it.
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

/// The files with their texts.
fn files(content: &Interface) -> Vec<(String, String)> {
    let mut files = vec![(By::Networkd.file(&content.interface), network(content))];
    if let Some(text) = netdev(content) {
        files.push((content.netdev_file(), text));
    }
    let joins = if content.bond.is_some() { "Bond" } else { "Bridge" };
    for port in content.ports() {
        let text = format!("{HEAD}[Match]\nName={port}\n\n[Network]\n{joins}={}\n", content.interface);
        files.push((By::Networkd.file(port), text));
    }
    if let Some(vlan) = &content.vlan {
        files.push((content.vlan_file(vlan), format!("{HEAD}[Network]\nVLAN={}\n", content.interface)));
    }
    files
}

fn network(content: &Interface) -> String {
    let mut text = format!("{HEAD}[Match]\nName={}\n", content.interface);
    if let Some(mtu) = content.mtu {
        let _ = write!(text, "\n[Link]\nMTUBytes={mtu}\n");
    }
    text.push_str("\n[Network]\n");
    let mut line = |key: &str, value: &str| text.push_str(&format!("{key}={value}\n"));
    match content.dhcp {
        Some(Dhcp::Both) => line("DHCP", "yes"),
        Some(Dhcp::Ipv4) => line("DHCP", "ipv4"),
        Some(Dhcp::Ipv6) => line("DHCP", "ipv6"),
        // Fixed addresses need no cable, and stay when the cable is pulled.
        None => line("ConfigureWithoutCarrier", "yes"),
    }
    if let Some(accepts) = content.accept_ra {
        line("IPv6AcceptRA", if accepts { "yes" } else { "no" });
    }
    for (key, values) in [("Address", &content.addresses), ("Gateway", &content.gateways), ("DNS", &content.dns)] {
        values.iter().for_each(|value| line(key, value));
    }
    if !content.domains.is_empty() {
        line("Domains", &content.domains.join(" "));
    }
    for route in &content.routes {
        let _ = write!(text, "\n[Route]\nDestination={}\nGateway={}\n", route.to, route.via);
        if let Some(metric) = route.metric {
            let _ = writeln!(text, "Metric={metric}");
        }
    }
    text
}

/// The definition of a virtual interface.
fn netdev(content: &Interface) -> Option<String> {
    let (kind, more) = if let Some(vlan) = &content.vlan {
        ("vlan", format!("\n[VLAN]\nId={}\n", vlan.id))
    } else if let Some(bridge) = &content.bridge {
        let stp = bridge.stp.map(|on| format!("\n[Bridge]\nSTP={}\n", if on { "yes" } else { "no" }));
        ("bridge", stp.unwrap_or_default())
    } else {
        let bond = content.bond.as_ref()?;
        ("bond", format!("\n[Bond]\nMode={}\nMIIMonitorSec=100ms\n", bond.mode.name()))
    };
    Some(format!("{HEAD}[NetDev]\nName={}\nKind={kind}\n{more}", content.interface))
}
