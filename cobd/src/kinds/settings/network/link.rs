//! Interfaces of the kernel, by the program `ip` of iproute2.

use std::fs;
use std::net::IpAddr;

use cob_kinds::{Interface, Route, prefixed};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::run;

/// An interface as the kernel has it, with all that is needed to configure it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) addresses: Vec<Address>,
    /// The routes that the kernel did not make by itself.
    pub(super) routes: Vec<KernelRoute>,
    pub(super) mtu: u64,
    pub(super) up: bool,
    /// The bridge or bond of which it is a port.
    #[serde(default)]
    pub(super) master: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Address {
    #[serde(rename = "local")]
    pub(super) address: IpAddr,
    #[serde(rename = "prefixlen")]
    pub(super) prefix: u8,
    pub(super) broadcast: Option<IpAddr>,
    #[serde(default)]
    scope: String,
    /// From DHCP or a router: its program takes care of it.
    #[serde(default)]
    dynamic: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KernelRoute {
    dst: String,
    pub(super) gateway: Option<IpAddr>,
    #[serde(default)]
    protocol: String,
    pub(super) metric: Option<u32>,
    #[serde(default)]
    flags: Vec<String>,
}

/// What `ip -details` shows.
#[derive(Deserialize)]
struct Shown {
    mtu: u64,
    flags: Vec<String>,
    master: Option<String>,
    addr_info: Vec<Address>,
    /// The interface below.
    link: Option<String>,
    #[serde(default)]
    linkinfo: LinkInfo,
}

#[derive(Default, Deserialize)]
struct LinkInfo {
    #[serde(default)]
    info_kind: String,
    #[serde(default)]
    info_data: Value,
}

impl Link {
    /// Adds the routes.
    fn of(name: &str, shown: Shown) -> Result<Self, String> {
        let mut routes: Vec<KernelRoute> = Vec::new();
        for family in ["-4", "-6"] {
            routes.extend(read::<Vec<KernelRoute>>(&[family, "-json", "route", "show", "dev", name])?);
        }
        routes.retain(|route| !["kernel", "ra", "dhcp"].contains(&route.protocol.as_str()));
        let is_fixed = |address: &Address| address.scope != "link" && !address.dynamic;
        let addresses = shown.addr_info.into_iter().filter(is_fixed).collect();
        let up = shown.flags.iter().any(|flag| flag == "UP");
        Ok(Self { addresses, routes, mtu: shown.mtu, up, master: shown.master })
    }
}

impl Shown {
    /// The definition, in the format of [`definition`].
    fn definition(&self) -> Value {
        let LinkInfo { info_kind, info_data } = &self.linkinfo;
        match info_kind.as_str() {
            "vlan" => json!({ "vlan": info_data["id"], "on": self.link }),
            "bond" => json!({ "bond": info_data["mode"] }),
            "bridge" => json!({ "stp": info_data["stp_state"].as_u64().is_some_and(|state| state != 0) }),
            other => json!({ "kind": other }),
        }
    }
}

impl Address {
    pub(super) fn text(&self) -> String {
        format!("{}/{}", self.address, self.prefix)
    }
}

impl KernelRoute {
    /// Its network. `None`: all networks.
    pub(super) fn to(&self) -> Option<(IpAddr, u8)> {
        let host = || {
            let address: IpAddr = self.dst.parse().ok()?;
            Some((address, if address.is_ipv4() { 32 } else { 128 }))
        };
        prefixed(&self.dst).or_else(host)
    }
}

/// Whether the network namespace has an interface. The folder `/sys/class/net` may be of another namespace.
pub(super) fn exists(name: &str) -> Result<bool, String> {
    let path = "/proc/self/net/dev";
    let table = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(table.lines().filter_map(|line| line.split_once(':')).any(|(found, _)| found.trim() == name))
}

/// What the kernel has of an interface. `None`: there is no such interface.
fn show(name: &str) -> Result<Option<Shown>, String> {
    if !exists(name)? {
        return Ok(None);
    }
    read::<Vec<Shown>>(&["-details", "-json", "address", "show", "dev", name]).map(|mut all| all.pop())
}

/// The interface with this name. `None`: there is no such interface.
pub(super) fn find(name: &str) -> Result<Option<Link>, String> {
    show(name)?.map(|shown| Link::of(name, shown)).transpose()
}

/// The desired interface, limited to the keys of the content.
pub(super) fn wanted(content: &Interface) -> Value {
    let mut wanted = json!({ "addresses": content.addresses, "gateways": content.gateways });
    wanted["routes"] = json!(content.routes.iter().map(name_of).collect::<Vec<_>>());
    if !content.ports().is_empty() {
        wanted["ports"] = json!(content.ports());
    }
    if let Some(mtu) = content.mtu {
        wanted["mtu"] = json!(mtu);
    }
    if let Some(definition) = definition(content) {
        wanted["definition"] = definition;
    }
    wanted
}

/// The desired definition of a virtual interface, limited to the keys of the content.
fn definition(content: &Interface) -> Option<Value> {
    if let Some(vlan) = &content.vlan {
        return Some(json!({ "vlan": vlan.id, "on": vlan.on }));
    }
    let stp = content.bridge.as_ref().and_then(|bridge| bridge.stp).map(|stp| json!({ "stp": stp }));
    content.bond.as_ref().map(|bond| json!({ "bond": bond.mode.name() })).or(stp)
}

/// Whether an interface exists whose definition differs from the content: no program changes it.
pub(super) fn is_redefined(content: &Interface) -> Result<bool, String> {
    let Some(wanted) = definition(content) else { return Ok(false) };
    Ok(show(&content.interface)?.is_some_and(|shown| shown.definition() != wanted))
}

/// The interface as it is, limited to the keys of the content. `None`: there is no such interface.
pub(super) fn look(content: &Interface) -> Result<Option<Value>, String> {
    let Some(shown) = show(&content.interface)? else { return Ok(None) };
    let found_definition = shown.definition();
    let link = Link::of(&content.interface, shown)?;
    let mut found = json!({
        "addresses": content.addresses.iter().filter(|text| link.has(text)).collect::<Vec<_>>(),
        "gateways": content.gateways.iter().filter(|via| link.leads(None, via, None)).collect::<Vec<_>>(),
        "routes": content.routes.iter().filter(|route| link.has_route(route)).map(name_of).collect::<Vec<_>>(),
    });
    if !content.ports().is_empty() {
        let mut ports = Vec::new();
        for port in content.ports() {
            let master = find(port)?.and_then(|link| link.master);
            ports.extend(master.is_some_and(|master| master == content.interface).then_some(port));
        }
        found["ports"] = json!(ports);
    }
    if content.mtu.is_some() {
        found["mtu"] = json!(link.mtu);
    }
    if definition(content).is_some() {
        found["definition"] = found_definition;
    }
    Ok(Some(found))
}

fn name_of(route: &Route) -> String {
    format!("{} via {}", route.to, route.via)
}

fn read<T: serde::de::DeserializeOwned>(arguments: &[&str]) -> Result<T, String> {
    let out = ip(arguments)?;
    // Some versions print no empty list.
    let out = if out.trim().is_empty() { "[]" } else { out.trim() };
    // Some versions list an empty object for each interface that was left out.
    let mut list: Value = serde_json::from_str(out).map_err(|error| format!("ip: {error}"))?;
    if let Some(list) = list.as_array_mut() {
        list.retain(|entry| entry.as_object().is_none_or(|entry| !entry.is_empty()));
    }
    serde_json::from_value(list).map_err(|error| format!("ip {}: {error}", arguments.join(" ")))
}

/// Runs `ip`.
pub(super) fn ip(arguments: &[&str]) -> Result<String, String> {
    run("ip", arguments)?.ok()
}

/// Removes an interface, if it exists.
pub(super) fn delete(name: &str) -> Result<(), String> {
    if !exists(name)? {
        return Ok(());
    }
    match ip(&["link", "delete", "dev", name]) {
        // Its program was faster.
        Err(_) if !exists(name)? => Ok(()),
        deleted => deleted.map(|_| ()),
    }
}

/// Takes an interface out of its bridge or bond, if both exist.
pub(super) fn release(name: &str) -> Result<(), String> {
    if exists(name)? { ip(&["link", "set", "dev", name, "nomaster"]).map(|_| ()) } else { Ok(()) }
}

/// Adds what an interface lacks, and leaves all else.
pub(super) fn complete(content: &Interface) -> Result<(), String> {
    let name = content.interface.as_str();
    let Some(link) = find(name)? else { return Ok(()) };
    if let Some(mtu) = content.mtu.filter(|mtu| u64::from(*mtu) != link.mtu) {
        ip(&["link", "set", "dev", name, "mtu", &mtu.to_string()])?;
    }
    if !link.up {
        ip(&["link", "set", "dev", name, "up"])?;
    }
    for port in content.ports() {
        if find(port)?.is_some_and(|link| link.master.as_deref() != Some(name)) {
            ip(&["link", "set", "dev", port, "master", name])?;
        }
    }
    for (address, prefix) in content.addresses.iter().filter(|text| !link.has(text)).filter_map(|text| prefixed(text)) {
        add(name, &format!("{address}/{prefix}"), broadcast(address, prefix))?;
    }
    for via in content.gateways.iter().filter(|via| !link.leads(None, via, None)) {
        ip(&["route", "add", "default", "via", via, "dev", name])?;
    }
    for route in content.routes.iter().filter(|route| !link.has_route(route)) {
        let metric = route.metric.map(|metric| metric.to_string());
        let mut words = vec!["route", "add", &route.to, "via", &route.via, "dev", name];
        words.extend(metric.iter().flat_map(|metric| ["metric", metric]));
        ip(&words)?;
    }
    Ok(())
}

/// Another interface with a route to all networks that a gateway without a metric would meet.
pub(super) fn leader(via: &str, name: &str) -> Result<Option<String>, String> {
    let family = if via.contains(':') { "-6" } else { "-4" };
    let routes: Vec<Value> = read(&[family, "-json", "route", "show", "default"])?;
    // The kernel gives each route of IPv6 a metric.
    let is_met =
        |route: &&Value| matches!(route["metric"].as_u64(), None | Some(0 | 1024)) && route["protocol"] != "ra";
    let others = routes.iter().filter(is_met).filter_map(|route| route["dev"].as_str());
    Ok(others.into_iter().find(|other| *other != name).map(str::to_owned))
}

/// The address for all hosts of a network of IPv4.
pub(super) fn broadcast(address: IpAddr, prefix: u8) -> Option<IpAddr> {
    let IpAddr::V4(bits) = address else { return None };
    (prefix < 31).then(|| IpAddr::V4((u32::from(bits) | (u32::MAX >> prefix)).into()))
}

impl Link {
    fn has(&self, text: &str) -> bool {
        prefixed(text).is_some_and(|(address, prefix)| {
            self.addresses.iter().any(|found| (found.address, found.prefix) == (address, prefix))
        })
    }

    fn leads(&self, to: Option<(IpAddr, u8)>, via: &str, metric: Option<u32>) -> bool {
        let via = via.parse().ok();
        let is_it = |found: &&KernelRoute| found.to() == to && found.gateway == via && via.is_some();
        self.routes.iter().filter(is_it).any(|found| metric.is_none() || found.metric == metric)
    }

    fn has_route(&self, route: &Route) -> bool {
        // The kernel has another name for all networks.
        self.leads(prefixed(&route.to).filter(|(_, prefix)| *prefix > 0), &route.via, route.metric)
    }

    /// Configures an interface that no program manages as it was before.
    pub(super) fn restore(&self, name: &str) -> Result<(), String> {
        let Some(now) = find(name)? else { return Ok(()) };
        match &self.master {
            master if *master == now.master => {}
            Some(master) if exists(master)? => drop(ip(&["link", "set", "dev", name, "master", master])?),
            _ => release(name)?,
        }
        if now.mtu != self.mtu {
            ip(&["link", "set", "dev", name, "mtu", &self.mtu.to_string()])?;
        }
        if now.up != self.up {
            ip(&["link", "set", "dev", name, if self.up { "up" } else { "down" }])?;
        }
        for address in now.addresses.iter().filter(|address| !self.addresses.contains(address)) {
            ip(&["address", "delete", &address.text(), "dev", name])?;
        }
        for address in self.addresses.iter().filter(|address| !now.addresses.contains(address)) {
            add(name, &address.text(), address.broadcast)?;
        }
        for route in self.routes.iter().filter(|_| self.up) {
            let metric = route.metric.map(|metric| metric.to_string());
            let gateway = route.gateway.map(|gateway| gateway.to_string());
            let family = match (route.to(), route.gateway) {
                (Some((to, _)), _) if to.is_ipv6() => "-6",
                (_, Some(gateway)) if gateway.is_ipv6() => "-6",
                _ => "-4",
            };
            let mut words = vec![family, "route", "replace", &route.dst];
            words.extend(gateway.iter().flat_map(|gateway| ["via", gateway]));
            words.extend(["dev", name]);
            words.extend(metric.iter().flat_map(|metric| ["metric", metric]));
            if !route.protocol.is_empty() {
                words.extend(["proto", &route.protocol]);
            }
            if route.flags.iter().any(|flag| flag == "onlink") {
                words.push("onlink");
            }
            ip(&words)?;
        }
        Ok(())
    }
}

/// Adds an address.
pub(super) fn add(name: &str, address: &str, broadcast: Option<IpAddr>) -> Result<(), String> {
    let broadcast = broadcast.map(|broadcast| broadcast.to_string());
    let mut words = vec!["address", "replace", address];
    words.extend(broadcast.iter().flat_map(|broadcast| ["broadcast", broadcast]));
    words.extend(["dev", name]);
    ip(&words).map(|_| ())
}
