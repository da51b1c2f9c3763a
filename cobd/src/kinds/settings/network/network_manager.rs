//! NetworkManager: its connections for a content, as keyfiles, and its work with an interface.
//!
//! A connection of others for the same interface stays as it is: the connection of the change object has the highest
//! priority, and the one that was active before is activated again when the change object leaves. Addresses that no
//! connection names, because a person or another program has added them (`connected (externally)`), are noted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use cob_kinds::{By, Interface};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::family::Family;
use super::{HAD, HEAD, LONGEST, Lan, NOTE, Program, is_unit, link, run};
use crate::kinds::native::{needs_program, new_uuid};

/// The unit of systemd.
const UNIT: &str = "NetworkManager.service";
/// The state of an active interface.
const CONNECTED: u32 = 100;
/// The state of an interface whose link is ready, and whose addresses are being set.
const ADDRESSES: u32 = 70;
/// The state of an interface that it does not manage.
const UNMANAGED: u32 = 10;
/// The exit status of `nmcli` if there is no such device (nmcli(1)).
const NOT_FOUND: i32 = 10;
/// A connection without addresses, so that it forgets all that it has set.
const EMPTY: [&str; 24] = [
    "ipv4.method",
    "disabled",
    "ipv4.addresses",
    "",
    "ipv4.gateway",
    "",
    "ipv4.routes",
    "",
    "ipv4.dns",
    "",
    "ipv4.dns-search",
    "",
    "ipv6.method",
    "link-local",
    "ipv6.addresses",
    "",
    "ipv6.gateway",
    "",
    "ipv6.routes",
    "",
    "ipv6.dns",
    "",
    "ipv6.dns-search",
    "",
];

/// The program.
pub(super) struct NetworkManager;

/// An interface as NetworkManager has it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Device {
    kind: String,
    state: u32,
    /// The words of the state.
    says: String,
    /// The active connection: its name and UUID.
    connection: Option<(String, String)>,
}

impl Device {
    /// From the lines `GENERAL.KEY:VALUE`.
    pub(super) fn read(text: &str) -> Self {
        let value = |key: &str| {
            let mut lines =
                text.lines().filter_map(|line| line.strip_prefix("GENERAL.")?.strip_prefix(key)?.strip_prefix(':'));
            lines.next().unwrap_or_default().trim().to_owned()
        };
        let says = value("STATE");
        let number = says.split(' ').next().and_then(|number| number.parse().ok());
        let connection = (value("CONNECTION"), value("CON-UUID"));
        Self {
            kind: value("TYPE"),
            state: number.unwrap_or_default(),
            says,
            connection: Some(connection).filter(|(_, uuid)| !uuid.is_empty()),
        }
    }

    /// Whether others have configured the interface, and its connection only says how.
    fn is_external(&self) -> bool {
        self.says.contains("externally")
    }

    /// The UUID of a connection that configures it.
    pub(super) fn uuid(&self) -> Option<&str> {
        self.connection.as_ref().filter(|_| !self.is_external()).map(|(_, uuid)| uuid.as_str())
    }
}

impl Program for NetworkManager {
    fn by(&self) -> By {
        By::NetworkManager
    }

    fn files(&self, content: &Interface) -> Vec<(String, String)> {
        let own = (By::NetworkManager.file(&content.interface), connection(content));
        let kind = if content.bond.is_some() { "bond" } else { "bridge" };
        let ports = content.ports().iter().map(|name| {
            let text = format!("{}master={}\nslave-type={kind}\n", head(name, "ethernet"), content.interface);
            (By::NetworkManager.file(name), text)
        });
        std::iter::once(own).chain(ports).collect()
    }

    /// Files that others can read are not loaded.
    fn mode(&self) -> u32 {
        0o600
    }

    fn expresses(&self, lan: &Lan) -> Result<(), String> {
        let content = &lan.content;
        for family in Family::ALL {
            let (name, addresses, is_on) = (family.name(), family.addresses(content), is_on(family, content));
            let gateway = family.of(&content.gateways).next();
            if let Some(gateway) = gateway.filter(|_| addresses.is_empty()) {
                return Err(format!(
                    "NetworkManager takes the gateway {gateway} only with an address of {name}: add one to \
                     `addresses`, or write a route to all networks in `routes`"
                ));
            }
            let route = content.routes.iter().map(|route| &route.via).find(|via| family.has(via));
            if let Some(server) = family.of(&content.dns).next().or(route).filter(|_| !is_on) {
                return Err(format!(
                    "NetworkManager takes name servers and routes of {name}, here {server}, only for an interface with \
                     addresses of {name} or with `dhcp`"
                ));
            }
        }
        if !content.domains.is_empty() && !Family::ALL.iter().any(|family| is_on(*family, content)) {
            return Err("NetworkManager takes `domains` only for an interface with addresses or with `dhcp`".to_owned());
        }
        Ok(())
    }

    fn is_active(&self) -> Result<(), String> {
        if is_unit("is-active", UNIT) {
            return Ok(());
        }
        Err(format!(
            "NetworkManager is not active on this host. Enable and start it first, with the present addresses in a \
             connection, for example by a `service` with `unit: {UNIT}`"
        ))
    }

    fn hindered(&self, lan: &Lan) -> Result<(), String> {
        needs_program("nmcli", "network-manager (NetworkManager on Fedora)")?;
        for name in lan.links() {
            let Some(device) = device(name)? else { continue };
            let is_made = lan.content.is_virtual() && name == lan.name();
            if !is_made && device.kind != "ethernet" {
                return Err(format!(
                    "{name} is an interface of the type {:?}; of the interfaces that exist, `network` configures only \
                     `ethernet` by NetworkManager",
                    device.kind
                ));
            }
            // An attempt to leave that was killed has ended its work with the interface.
            if device.state == UNMANAGED && !lan.own.join(NOTE).exists() && !is_made {
                return Err(format!(
                    "NetworkManager does not manage {name} (`unmanaged-devices` in its configuration, or a rule of \
                     udev): `nmcli device set {name} managed yes` changes that until the next boot"
                ));
            }
        }
        Ok(())
    }

    fn wanted(&self, content: &Interface) -> Value {
        json!({ "state": "connected", "file": By::NetworkManager.file(&content.interface) })
    }

    fn look(&self, content: &Interface) -> Result<Value, String> {
        let name = content.interface.as_str();
        let Some(device) = device(name)? else { return Ok(json!({ "state": "unknown to NetworkManager" })) };
        let uuid = uuid(name);
        // A bridge or bond without ports waits for them without end.
        let is_bundle = content.bridge.is_some() || content.bond.is_some();
        let is_ready = device.state == CONNECTED || (is_bundle && (ADDRESSES..CONNECTED).contains(&device.state));
        let state = match &device.connection {
            Some((_, by)) if *by == uuid && is_ready => "connected".to_owned(),
            Some((connection, by)) if *by != uuid => format!("{} by the connection {connection:?}", device.says),
            _ if device.state == 120 => "failed".to_owned(),
            _ => device.says,
        };
        Ok(json!({ "state": state, "file": connections()?.get(&uuid) }))
    }

    fn had(&self, name: &str) -> Result<Option<Value>, String> {
        if self.is_active().is_err() {
            return Ok(None);
        }
        Ok(device(name)?.and_then(|device| device.uuid().map(|uuid| json!({ "connection": uuid }))))
    }

    fn apply(&self, lan: &Lan, before: Option<&Value>) -> Result<(), String> {
        let own = By::NetworkManager.file(lan.name());
        // It does not change the definition of an interface that exists.
        let redefined = |file: &str, found: &str, _: &str| {
            file == own && definition(&lan.content).is_some_and(|(_, text)| !found.contains(&text))
        };
        let put = lan.put_files(before, &redefined)?;
        let files = lan.content.files(self.by());
        for file in &files {
            let path = lan.host.path(file);
            let set = fs::set_permissions(&path, fs::Permissions::from_mode(self.mode()));
            set.map_err(|error| format!("{}: {error}", path.display()))?;
        }
        for name in &put.left {
            give_back(lan, before.unwrap_or(&Value::Null), name)?;
        }
        load(files.iter().cloned().chain(put.left.iter().map(|name| self.by().file(name))))?;
        for name in &put.left {
            finish(before.unwrap_or(&Value::Null), lan, name)?;
        }
        let known = connections()?;
        for name in lan.links() {
            let (file, uuid) = (self.by().file(name), uuid(name));
            if known.get(&uuid) != Some(&file) {
                return Err(format!("NetworkManager has not loaded {file}; its journal says more"));
            }
            activate(lan, name, &uuid)?;
        }
        lan.wait("NetworkManager", &format!("nmcli device show {}", lan.name()))
    }

    fn restore(&self, lan: &Lan, before: &Value) -> Result<(), String> {
        if self.is_active().is_err() {
            lan.put_back(before, self.by())?;
            lan.delete_made(before)?;
            return lan.noted_links(before)?.into_iter().try_for_each(|(name, link)| link.restore(name));
        }
        let links = lan.noted_links(before)?;
        for (name, _) in &links {
            give_back(lan, before, name)?;
        }
        lan.put_back(before, self.by())?;
        let files = before.as_object().into_iter().flatten().map(|(key, _)| key);
        load(files.filter(|key| By::of_file(key) == Some(self.by())).cloned())?;
        lan.delete_made(before)?;
        links.iter().try_for_each(|(name, _)| finish(before, lan, name))
    }
}

/// Activates a connection, or brings its interface back to it.
fn activate(lan: &Lan, name: &str, uuid: &str) -> Result<(), String> {
    let device = device(name)?;
    if device.as_ref().is_some_and(|device| device.state == UNMANAGED) {
        nmcli(&["device", "set", name, "managed", "yes"])?;
    }
    let is_active = device.as_ref().is_some_and(|device| device.uuid() == Some(uuid) && device.state >= ADDRESSES);
    let is_port = name != lan.name();
    // It changes only what differs, without taking the interface down.
    if is_active && !is_port && nmcli(&["device", "reapply", name]).is_ok() {
        return Ok(());
    }
    let master = if is_port { link::find(name)?.and_then(|link| link.master) } else { None };
    if is_active && is_port && master.as_deref() == Some(lan.name()) {
        return Ok(());
    }
    // A bridge may wait for its ports.
    let waits = if !is_port && !lan.content.ports().is_empty() { 0 } else { LONGEST.min(lan.longest).as_secs() };
    nmcli(&["--wait", &waits.to_string(), "connection", "up", "uuid", uuid]).map(|_| ())
}

/// Lets an interface go: to the connection that it had before, or to the addresses that it had without one.
fn give_back(lan: &Lan, before: &Value, name: &str) -> Result<(), String> {
    let Some(device) = device(name)? else { return Ok(()) };
    let ours = uuid(name);
    let earlier = before[format!("{HAD}{name}")]["connection"].as_str();
    if device.uuid().is_some_and(|uuid| uuid != ours) {
        return Ok(());
    }
    if let Some(earlier) = earlier.filter(|earlier| *earlier != ours)
        && connections()?.contains_key(earlier)
    {
        let waits = LONGEST.min(lan.longest).as_secs().to_string();
        let up = ["--wait", &waits, "connection", "up", "uuid", earlier, "ifname", name];
        if nmcli(&up).is_ok() {
            return Ok(());
        }
    }
    if device.uuid() == Some(&ours) {
        // A managed interface would lose addresses that NetworkManager has set. A port has no addresses.
        let _ = nmcli(&[&["device", "modify", name][..], &EMPTY].concat());
    }
    nmcli(&["device", "set", name, "managed", "no"]).map(|_| ())
}

/// Gives an interface that was let go its noted addresses.
fn finish(before: &Value, lan: &Lan, name: &str) -> Result<(), String> {
    if device(name)?.is_none_or(|device| device.state != UNMANAGED) {
        return Ok(());
    }
    if let Some((_, link)) = lan.noted_links(before)?.into_iter().find(|(noted, _)| *noted == name) {
        link.restore(name)?;
    }
    nmcli(&["device", "set", name, "managed", "yes"]).map(|_| ())
}

/// Lets NetworkManager read files, also those that are gone.
fn load(files: impl Iterator<Item = String>) -> Result<(), String> {
    let files: Vec<String> = files.collect();
    let mut words = vec!["connection", "load"];
    words.extend(files.iter().map(String::as_str));
    nmcli(&words).map(|_| ())
}

/// The connection of others that configures an interface now.
pub(super) fn connection_of(name: &str) -> Result<Option<String>, String> {
    if NetworkManager.is_active().is_err() {
        return Ok(None);
    }
    let device = device(name)?.filter(|device| device.uuid().is_some_and(|by| by != uuid(name)));
    Ok(device.and_then(|device| device.connection).map(|(name, _)| name))
}

/// An interface. `None`: NetworkManager has no such interface.
fn device(name: &str) -> Result<Option<Device>, String> {
    if !link::exists(name)? {
        return Ok(None);
    }
    let fields = "GENERAL.TYPE,GENERAL.STATE,GENERAL.CONNECTION,GENERAL.CON-UUID";
    let ran = run("nmcli", &["--terse", "--escape", "no", "--fields", fields, "device", "show", name])?;
    // It may not have seen the interface yet.
    match ran.code {
        Some(NOT_FOUND) => Ok(None),
        Some(_) | None => Ok(Some(Device::read(&ran.ok()?))),
    }
}

/// The files of all connections by UUID.
fn connections() -> Result<BTreeMap<String, String>, String> {
    let text = nmcli(&["--terse", "--escape", "no", "--fields", "UUID,FILENAME", "connection", "show"])?;
    let pair = |line: &str| line.split_once(':').map(|(uuid, file)| (uuid.to_owned(), file.to_owned()));
    Ok(text.lines().filter_map(pair).collect())
}

fn nmcli(arguments: &[&str]) -> Result<String, String> {
    run("nmcli", arguments)?.ok()
}

/// The UUID of the connection of an interface, the same on each host.
fn uuid(interface: &str) -> String {
    let sum = Sha256::digest(format!("cob network {interface}").as_bytes());
    new_uuid(5, std::array::from_fn(|at| sum[at]))
}

/// Whether it sets addresses of the family.
fn is_on(family: Family, content: &Interface) -> bool {
    !["disabled", "link-local"].contains(&method(family, content))
}

/// The way to addresses, in its words.
fn method(family: Family, content: &Interface) -> &'static str {
    let (has_addresses, has_dhcp) = (!family.addresses(content).is_empty(), family.has_dhcp(content));
    match (family, content.accept_ra) {
        (Family::V4, _) if has_dhcp => "auto",
        (Family::V4, _) if has_addresses => "manual",
        (Family::V4, _) => "disabled",
        (Family::V6, Some(false)) if has_dhcp => "dhcp",
        (Family::V6, _) if has_dhcp => "auto",
        (Family::V6, Some(true)) => "auto",
        (Family::V6, _) if has_addresses => "manual",
        // Without any other address the interface would wait for a router.
        (Family::V6, None) if is_on(Family::V4, content) => "auto",
        (Family::V6, _) => "link-local",
    }
}

fn head(name: &str, kind: &str) -> String {
    let uuid = uuid(name);
    format!(
        "{HEAD}[connection]\nid=cob-{name}\nuuid={uuid}\ntype={kind}\ninterface-name={name}\n\
         autoconnect-priority=999\n"
    )
}

/// The type of a virtual interface, and its section.
fn definition(content: &Interface) -> Option<(&'static str, String)> {
    if let Some(vlan) = &content.vlan {
        return Some(("vlan", format!("\n[vlan]\nid={}\nparent={}\n", vlan.id, vlan.on)));
    }
    if let Some(bridge) = &content.bridge {
        let stp = bridge.stp.map(|on| format!("stp={on}\n")).unwrap_or_default();
        return Some(("bridge", format!("\n[bridge]\n{stp}")));
    }
    let bond = content.bond.as_ref()?;
    Some(("bond", format!("\n[bond]\nmiimon=100\nmode={}\n", bond.mode.name())))
}

fn connection(content: &Interface) -> String {
    let (kind, section) = definition(content).unwrap_or(("ethernet", String::new()));
    let mut text = head(&content.interface, kind) + &section;
    if let Some(mtu) = content.mtu {
        let _ = write!(text, "\n[ethernet]\nmtu={mtu}\n");
    }
    for family in Family::ALL {
        let key = if family == Family::V4 { "ipv4" } else { "ipv6" };
        let _ = write!(text, "\n[{key}]\nmethod={}\n", method(family, content));
        for (number, address) in (1..).zip(family.addresses(content)) {
            let _ = writeln!(text, "address{number}={address}");
        }
        for gateway in family.of(&content.gateways) {
            let _ = writeln!(text, "gateway={gateway}");
        }
        let list = |all: Vec<&String>| all.into_iter().map(|value| format!("{value};")).collect::<String>();
        let dns = list(family.of(&content.dns).collect());
        if !dns.is_empty() {
            let _ = writeln!(text, "dns={dns}");
        }
        if !content.domains.is_empty() && is_on(family, content) {
            let _ = writeln!(text, "dns-search={}", list(content.domains.iter().collect()));
        }
        for (number, route) in (1..).zip(content.routes.iter().filter(|route| family.has(&route.via))) {
            let metric = route.metric.map(|metric| format!(",{metric}")).unwrap_or_default();
            let _ = writeln!(text, "route{number}={},{}{metric}", route.to, route.via);
        }
    }
    text
}
