//! The files of systemd-networkd for a content.

use std::fmt::Write as _;

use cob_kinds::{Dhcp, Interface};

const HEAD: &str = "# Written by cobd.\n";

/// The files with their texts.
pub(super) fn files(content: &Interface) -> Vec<(String, String)> {
    let mut files = vec![(Interface::network_file(&content.interface), network(content))];
    if let Some(text) = netdev(content) {
        files.push((content.netdev_file(), text));
    }
    let joins = if content.bond.is_some() { "Bond" } else { "Bridge" };
    for port in content.ports() {
        let text = format!("{HEAD}[Match]\nName={port}\n\n[Network]\n{joins}={}\n", content.interface);
        files.push((Interface::network_file(port), text));
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
