//! ifupdown of Debian: its files for a content, and its work with an interface.
//!
//! The file makes a virtual interface with `ip`, and needs none of the packages `vlan`, `bridge-utils` and `ifenslave`.
//! Lines of others about the same interface are not touched: the interface is refused, for ifupdown would apply both.

use std::fs;

use cob_kinds::{By, Interface, is_in_network};
use serde_json::{Value, json};

use super::family::Family;
use super::{HAD, HEAD, Lan, Program, is_unit, link, run};
use crate::kinds::native::{Host, has_program};

/// The file that each ifupdown reads.
const INTERFACES: &str = "/etc/network/interfaces";
/// The folder of further files.
const FOLDER: &str = "/etc/network/interfaces.d";
/// The unit of systemd that configures the interfaces at boot.
const UNIT: &str = "networking.service";
/// The programs for DHCP that ifupdown knows.
const CLIENTS: [&str; 3] = ["dhclient", "udhcpc", "dhcpcd"];

/// The program.
pub(super) struct Ifupdown;

impl Program for Ifupdown {
    fn by(&self) -> By {
        By::Ifupdown
    }

    fn files(&self, content: &Interface) -> Vec<(String, String)> {
        let own = (By::Ifupdown.file(&content.interface), stanzas(content));
        let ports = content.ports().iter().map(|port| {
            let text = format!("{HEAD}# A port of {}.\niface {port} inet manual\n", content.interface);
            (By::Ifupdown.file(port), text)
        });
        std::iter::once(own).chain(ports).collect()
    }

    fn expresses(&self, lan: &Lan) -> Result<(), String> {
        let content = &lan.content;
        for family in Family::ALL {
            if let Some(gateway) = family.of(&content.gateways).next().filter(|_| family.addresses(content).is_empty())
            {
                return Err(format!(
                    "ifupdown takes the gateway {gateway} only with an address of the same family: add one to \
                     `addresses`, or write a route to all networks in `routes`"
                ));
            }
        }
        match content.domains.iter().find(|domain| domain.starts_with('~')) {
            Some(domain) => Err(format!("ifupdown has no domains that only route questions, such as {domain:?}")),
            None => Ok(()),
        }
    }

    fn is_active(&self) -> Result<(), String> {
        if !has_program("ifup") || !has_program("ifquery") {
            return Err("ifupdown is not installed on this host".to_owned());
        }
        if !is_unit("is-enabled", UNIT) {
            return Err(format!("{UNIT}, which lets ifupdown configure interfaces at boot, is not enabled"));
        }
        Ok(())
    }

    fn hindered(&self, lan: &Lan) -> Result<(), String> {
        let version = run("ifup", &["--version"])?.out;
        if !version.starts_with("ifup version 0.") {
            let version = version.lines().next().unwrap_or_default();
            return Err(format!(
                "`ifup` of this host ({version}) is not ifupdown of Debian, for which `network` writes"
            ));
        }
        let content = &lan.content;
        let own = By::Ifupdown.file(lan.name());
        if !is_read(&lan.host.read(INTERFACES)?, &own) {
            return Err(format!(
                "{INTERFACES} does not include {own}: add the line `source {FOLDER}/*`, for example with the kind \
                 `line`"
            ));
        }
        let ours = content.files(self.by());
        for name in lan.links() {
            if let Some(file) = file_of(&lan.host, name, &ours)? {
                return Err(format!(
                    "{file} has `iface {name}`, and ifupdown would apply its lines, too: remove them, for example with \
                     the kind `line`, and name the addresses in this content"
                ));
            }
        }
        for via in &content.gateways {
            if let Some(other) = link::leader(via, lan.name())? {
                return Err(format!(
                    "{other} has the route to all other networks, and ifupdown can't add the gateway {via} beside it: \
                     write it as a route to 0.0.0.0/0 or ::/0 in `routes`, with a `metric`"
                ));
            }
        }
        if content.dhcp.is_some() && !CLIENTS.iter().any(|client| has_program(client)) {
            return Err("ifupdown needs a program for `dhcp`; install the package isc-dhcp-client".to_owned());
        }
        if Family::V6.has_dhcp(content) && !has_program("dhclient") {
            return Err("ifupdown needs dhclient for DHCP of IPv6; install the package isc-dhcp-client".to_owned());
        }
        if (!content.dns.is_empty() || !content.domains.is_empty())
            && lan.host.inspect("/etc/network/if-up.d/000resolvconf")?.is_none()
            && !is_unit("is-enabled", "systemd-resolved.service")
        {
            return Err(
                "ifupdown passes `dns` and `domains` on to resolvconf or systemd-resolved: install the package \
                        resolvconf, or set /etc/resolv.conf with a file-tree"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn wanted(&self, _: &Interface) -> Value {
        json!({ "state": "up" })
    }

    fn look(&self, content: &Interface) -> Result<Value, String> {
        Ok(json!({ "state": if is_up(&content.interface)? { "up" } else { "down" } }))
    }

    fn had(&self, name: &str) -> Result<Option<Value>, String> {
        Ok((self.is_active().is_ok() && is_up(name)?).then(|| json!({ "up": true })))
    }

    fn apply(&self, lan: &Lan, before: Option<&Value>) -> Result<(), String> {
        let (name, files) = (lan.name(), self.files(&lan.content));
        let mut is_written = true;
        for (file, text) in &files {
            is_written &= lan.host.read_if_there(file)?.as_ref() == Some(text);
        }
        if is_written && is_up(name)? {
            // An interface that has lost an address is not taken down for it.
            link::complete(&lan.content)?;
            if lan.look_at_link()? == lan.wanted_link() {
                return Ok(());
            }
        }
        // By the lines with which it went up.
        down(name)?;
        let put = lan.put_files(before, &|_, _, _| false)?;
        put.left.iter().try_for_each(|port| link::release(port))?;
        if lan.content.is_virtual() {
            // Its definition may be another.
            link::delete(name)?;
        }
        // An address that is there already would fail.
        down(name)?;
        up(name)?;
        lan.wait("ifupdown", &format!("ifup --force --verbose {name}"))
    }

    fn restore(&self, lan: &Lan, before: &Value) -> Result<(), String> {
        let is_active = self.is_active().is_ok();
        if is_active {
            down(lan.name())?;
        }
        lan.put_back(before, self.by())?;
        lan.delete_made(before)?;
        for (name, link) in lan.noted_links(before)? {
            let was_up = before[format!("{HAD}{name}")]["up"] == json!(true);
            let is_theirs = was_up && is_active && file_of(&lan.host, name, &[])?.is_some();
            if is_theirs && !is_up(name)? {
                up(name)?;
            } else if !is_theirs {
                link.restore(name)?;
            }
        }
        Ok(())
    }
}

/// Takes an interface down by the lines of its files, if it has lines; also an interface that is not there any more.
fn down(name: &str) -> Result<(), String> {
    // Its complaints are about things that are down already.
    run("ifdown", &["--force", "--", name]).map(|_| ())
}

/// Lets it configure an interface, whatever it remembers.
fn up(name: &str) -> Result<(), String> {
    run("ifup", &["--force", "--", name])?.ok().map(|_| ())
}

fn is_up(name: &str) -> Result<bool, String> {
    let ran = run("ifquery", &["--state", "--", name])?;
    Ok(ran.out.lines().any(|line| line.split('=').next() == Some(name)))
}

/// The file, other than these, with lines about an interface.
pub(super) fn file_of(host: &Host, name: &str, except: &[String]) -> Result<Option<String>, String> {
    let mut files = vec![INTERFACES.to_owned()];
    let folder = fs::read_dir(host.path(FOLDER)).into_iter().flatten().flatten();
    let names = folder.filter_map(|entry| entry.file_name().into_string().ok());
    files.extend(names.filter(|name| !name.starts_with('.')).map(|name| format!("{FOLDER}/{name}")));
    files.sort();
    for file in files.iter().filter(|file| !except.contains(file)) {
        if host.read(file)?.lines().any(|line| is_about(line, name)) {
            return Ok(Some(file.clone()));
        }
    }
    Ok(None)
}

fn is_about(line: &str, name: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next() == Some("iface") && words.next() == Some(name)
}

/// Whether the text of the main file includes a file of the folder.
pub(super) fn is_read(interfaces: &str, file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or_default();
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    interfaces.lines().any(|line| {
        let mut words = line.split_whitespace();
        let (word, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let path = path.strip_prefix("/etc/network/").unwrap_or(path).trim_end_matches('/');
        match word {
            "source" => ["interfaces.d/*", "interfaces.d/cob-*"].contains(&path),
            // It takes no other names.
            "source-directory" => path == "interfaces.d" && is_plain,
            _ => false,
        }
    })
}

/// A stanza `iface`: its family and method, and its lines.
type Stanza = (&'static str, Vec<String>);

fn stanzas(content: &Interface) -> String {
    let name = &content.interface;
    let mut stanzas: Vec<Stanza> = Vec::new();
    if content.is_virtual() {
        stanzas.push(("inet manual", Vec::new()));
    }
    addresses_of_ipv4(content, &mut stanzas);
    addresses_of_ipv6(content, &mut stanzas);
    if stanzas.is_empty() {
        stanzas.push(("inet manual", Vec::new()));
    }
    let first = &mut stanzas.first_mut().expect("it was pushed").1;
    first.extend(made(content));
    first.extend(content.mtu.map(|mtu| format!("pre-up ip link set dev {name} mtu {mtu}")));
    for (key, values) in [("dns-nameservers", &content.dns), ("dns-search", &content.domains)] {
        first.extend((!values.is_empty()).then(|| format!("{key} {}", values.join(" "))));
    }
    // All addresses are there then.
    let last = &mut stanzas.last_mut().expect("it was pushed").1;
    for route in &content.routes {
        let metric = route.metric.map(|metric| format!(" metric {metric}")).unwrap_or_default();
        last.push(format!("up ip route replace {} via {} dev {name}{metric}", route.to, route.via));
    }
    let mut text = format!("{HEAD}auto {name}\n");
    for (method, lines) in stanzas {
        text.push_str(&format!("iface {name} {method}\n"));
        lines.iter().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    text
}

fn addresses_of_ipv4(content: &Interface, stanzas: &mut Vec<Stanza>) {
    if Family::V4.has_dhcp(content) {
        stanzas.push(("inet dhcp", Vec::new()));
    }
    let mut gateway = Family::V4.of(&content.gateways).next();
    let addresses = Family::V4.addresses(content);
    for (number, address) in (1..).zip(&addresses) {
        let mut lines = vec![format!("address {address}")];
        let is_there = |via: &&String| number == addresses.len() || is_in_network(via, address);
        lines.extend(gateway.take_if(|via| is_there(&&**via)).map(|via| format!("gateway {via}")));
        stanzas.push(("inet static", lines));
    }
}

fn addresses_of_ipv6(content: &Interface, stanzas: &mut Vec<Stanza>) {
    let addresses = Family::V6.addresses(content);
    let has_dhcp = Family::V6.has_dhcp(content);
    if has_dhcp {
        let accepts = content.accept_ra.map(|accepts| format!("accept_ra {}", if accepts { 2 } else { 0 }));
        stanzas.push(("inet6 dhcp", accepts.into_iter().collect()));
    } else if addresses.is_empty() {
        match content.accept_ra {
            Some(true) => stanzas.push(("inet6 auto", Vec::new())),
            Some(false) => {
                let line = format!("pre-up sysctl -q -e -w net/ipv6/conf/{}/accept_ra=0", content.interface);
                stanzas.push(("inet6 manual", vec![line]));
            }
            None => {}
        }
    }
    let mut gateway = Family::V6.of(&content.gateways).next();
    for address in addresses {
        // Waiting for the check of duplicates fails without a cable.
        let mut lines = vec![format!("address {address}"), "dad-attempts 0".to_owned()];
        lines.extend(gateway.take().map(|via| format!("gateway {via}")));
        match content.accept_ra.filter(|_| !has_dhcp) {
            Some(true) => lines.extend(["accept_ra 2".to_owned(), "autoconf 1".to_owned()]),
            Some(false) => lines.push("accept_ra 0".to_owned()),
            None => {}
        }
        stanzas.push(("inet6 static", lines));
    }
}

/// The lines that make a virtual interface.
fn made(content: &Interface) -> Vec<String> {
    let name = &content.interface;
    let mut lines = Vec::new();
    let mut make = |what: &str| {
        lines.push(format!("pre-up ip link show dev {name} >/dev/null 2>&1 || ip link add {what}"));
    };
    if let Some(vlan) = &content.vlan {
        make(&format!("link {} name {name} type vlan id {}", vlan.on, vlan.id));
        lines.insert(0, format!("pre-up ip link set dev {} up", vlan.on));
    } else if let Some(bridge) = &content.bridge {
        make(&format!("name {name} type bridge"));
        lines.extend(
            bridge.stp.map(|on| format!("pre-up ip link set dev {name} type bridge stp_state {}", u8::from(on))),
        );
    } else if let Some(bond) = &content.bond {
        make(&format!("name {name} type bond mode {} miimon 100", bond.mode.name()));
    }
    for port in content.ports() {
        // A bond takes only ports that are down.
        lines.push(format!("pre-up ip link set dev {port} down"));
        lines.push(format!("pre-up ip link set dev {port} master {name}"));
        lines.push(format!("pre-up ip link set dev {port} up"));
    }
    if content.is_virtual() {
        lines.push(format!("post-down ip link delete dev {name} 2>/dev/null || true"));
    }
    lines
}
