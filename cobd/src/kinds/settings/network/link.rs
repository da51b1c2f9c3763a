//! Interfaces of the kernel, by the program `ip` of iproute2.

use std::fs;
use std::net::IpAddr;
use std::process::Command;

use cob_kinds::prefixed;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kinds::native::run_bounded;

/// An interface as the kernel has it, with all that is needed to configure it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) addresses: Vec<Address>,
    /// The routes that the kernel did not make by itself.
    pub(super) routes: Vec<KernelRoute>,
    pub(super) mtu: u64,
    pub(super) up: bool,
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

#[derive(Deserialize)]
struct Shown {
    mtu: u64,
    flags: Vec<String>,
    addr_info: Vec<Address>,
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

/// The interface with this name. `None`: there is no such interface.
pub(super) fn find(name: &str) -> Result<Option<Link>, String> {
    if !exists(name)? {
        return Ok(None);
    }
    let mut all: Vec<Shown> = read(&["-json", "address", "show", "dev", name])?;
    let Some(shown) = all.pop() else { return Ok(None) };
    let mut routes: Vec<KernelRoute> = Vec::new();
    for family in ["-4", "-6"] {
        routes.extend(read::<Vec<KernelRoute>>(&[family, "-json", "route", "show", "dev", name])?);
    }
    routes.retain(|route| !["kernel", "ra", "dhcp"].contains(&route.protocol.as_str()));
    let is_fixed = |address: &Address| address.scope != "link" && !address.dynamic;
    let addresses = shown.addr_info.into_iter().filter(is_fixed).collect();
    Ok(Some(Link { addresses, routes, mtu: shown.mtu, up: shown.flags.iter().any(|flag| flag == "UP") }))
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
    run_bounded(Command::new("ip").args(arguments).env("LC_ALL", "C.UTF-8"), b"")?.ok()
}

impl Link {
    /// Configures an interface that no program manages as it was before.
    pub(super) fn restore(&self, name: &str) -> Result<(), String> {
        let Some(now) = find(name)? else { return Ok(()) };
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
            add(name, address, address.broadcast)?;
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
pub(super) fn add(name: &str, address: &Address, broadcast: Option<IpAddr>) -> Result<(), String> {
    let (text, broadcast) = (address.text(), broadcast.map(|broadcast| broadcast.to_string()));
    let mut words = vec!["address", "replace", &text];
    words.extend(broadcast.iter().flat_map(|broadcast| ["broadcast", broadcast]));
    words.extend(["dev", name]);
    ip(&words).map(|_| ())
}
