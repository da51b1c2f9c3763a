//! The kind `network`: an interface of the network, configured by systemd-networkd, NetworkManager or ifupdown.

use std::net::IpAddr;
use std::path::PathBuf;

use cob_types::CobId;
use cob_types::words::number;
use schemars::JsonSchema;
use serde::Deserialize;

use super::firewall::masked;
use super::{Builtin, Content, Faults, Footprint, Place};

/// The longest name of an interface.
const MAX_NAME: usize = 15;
/// The folder of the files of systemd-networkd.
const NETWORKD: &str = "/etc/systemd/network";
/// The folder of the files of NetworkManager.
const NETWORK_MANAGER: &str = "/etc/NetworkManager/system-connections";
/// The folder of the files of ifupdown.
const IFUPDOWN: &str = "/etc/network/interfaces.d";

/// The content of `network`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// The interface, for example `eth0`.
    pub interface: String,
    /// Its addresses with prefixes: `[10.0.0.2/24, fd00::2/64]`.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// The addresses of the routers for all other networks, at most one of each family.
    #[serde(default)]
    pub gateways: Vec<String>,
    /// Addresses by DHCP: `ipv4`, `ipv6` or `both`; default: no DHCP.
    pub dhcp: Option<Dhcp>,
    /// Accept the router advertisements of IPv6; default: as the program decides.
    pub accept_ra: Option<bool>,
    /// The addresses of name servers.
    #[serde(default)]
    pub dns: Vec<String>,
    /// The domains in which names are looked up.
    #[serde(default)]
    pub domains: Vec<String>,
    /// The longest packet in bytes.
    pub mtu: Option<u32>,
    /// Further routes.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// The interface is a VLAN on another interface: `{id: 5, on: eth0}`.
    pub vlan: Option<Vlan>,
    /// The interface is a bridge: `{ports: [eth1]}`.
    pub bridge: Option<Bridge>,
    /// The interface is a bond: `{ports: [eth1, eth2], mode: active-backup}`.
    pub bond: Option<Bond>,
    /// The program that configures it; default: the program that is active on the host, and systemd-networkd for a
    /// `root`.
    pub by: Option<By>,
    /// A folder that is to become a host, instead of the host itself: the files alone.
    pub root: Option<PathBuf>,
}

/// A program that configures interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum By {
    /// systemd-networkd.
    #[serde(rename = "networkd")]
    Networkd,
    /// NetworkManager.
    NetworkManager,
    /// The programs `ifup` and `ifdown` of Debian.
    #[serde(rename = "ifupdown")]
    Ifupdown,
}

impl By {
    /// All programs.
    pub const ALL: [Self; 3] = [Self::Networkd, Self::NetworkManager, Self::Ifupdown];

    /// Its name in a content.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Networkd => "networkd",
            Self::NetworkManager => "NetworkManager",
            Self::Ifupdown => "ifupdown",
        }
    }

    /// The program that reads a file.
    #[must_use]
    pub fn of_file(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| path.strip_prefix(by.folder()).is_some_and(|rest| rest.starts_with('/')))
    }

    /// The file with the addresses of an interface.
    #[must_use]
    pub fn file(self, interface: &str) -> String {
        let folder = self.folder();
        match self {
            Self::Networkd => format!("{folder}/10-cob-{interface}.network"),
            Self::NetworkManager => format!("{folder}/cob-{interface}.nmconnection"),
            Self::Ifupdown => format!("{folder}/cob-{interface}"),
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Networkd => NETWORKD,
            Self::NetworkManager => NETWORK_MANAGER,
            Self::Ifupdown => IFUPDOWN,
        }
    }
}

/// Which addresses come by DHCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dhcp {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Both families.
    Both,
}

/// A route.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The network: `10.9.0.0/16`.
    pub to: String,
    /// The router.
    pub via: String,
    /// The route with the lowest metric is used first.
    pub metric: Option<u32>,
}

/// A VLAN.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vlan {
    /// The number, 1 to 4094.
    pub id: u16,
    /// The interface below it, which another change object of the kind configures.
    pub on: String,
}

/// A bridge.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bridge {
    /// The interfaces that it joins.
    #[serde(default)]
    pub ports: Vec<String>,
    /// The spanning tree protocol; default: as the kernel decides.
    pub stp: Option<bool>,
}

/// A bond.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bond {
    /// The interfaces that it joins.
    pub ports: Vec<String>,
    /// The mode; default: `active-backup`.
    #[serde(default)]
    pub mode: BondMode,
}

/// The mode of a bond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BondMode {
    /// A single port is in use.
    #[default]
    ActiveBackup,
    /// All ports in turn.
    BalanceRr,
    /// By a checksum of the addresses.
    BalanceXor,
    /// Everything on all ports.
    Broadcast,
    /// By LACP.
    #[serde(rename = "802.3ad")]
    Lacp,
    /// By the load of the ports, for outgoing packets.
    BalanceTlb,
    /// By the load of the ports.
    BalanceAlb,
}

impl BondMode {
    /// Its name in the kernel and in all programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ActiveBackup => "active-backup",
            Self::BalanceRr => "balance-rr",
            Self::BalanceXor => "balance-xor",
            Self::Broadcast => "broadcast",
            Self::Lacp => "802.3ad",
            Self::BalanceTlb => "balance-tlb",
            Self::BalanceAlb => "balance-alb",
        }
    }
}

impl Content for Interface {
    const KIND: Builtin = Builtin { timeout_ms: 120_000, ..Builtin::setting("network") };

    fn check(&self, faults: &mut Faults) {
        faults.check_absolute("root", self.root.as_ref());
        let mut name = |place: Place, name: &String| {
            if !is_name(name) {
                let what = format!("{name:?} is not the name of an interface");
                faults.add(place, what, "1 to 15 letters, digits, and `.`, `_`, `-`, for example eth0");
            }
        };
        name(Place::Key("interface"), &self.interface);
        if let Some(vlan) = &self.vlan {
            name(Place::Value("vlan", "on".to_owned()), &vlan.on);
        }
        for port in self.ports() {
            let key = if self.bond.is_some() { "bond" } else { "bridge" };
            name(Place::Value(key, "ports".to_owned()), port);
        }
        let is_itself = |other: &String| *other == self.interface;
        if self.ports().iter().any(is_itself) || self.vlan.as_ref().is_some_and(|vlan| is_itself(&vlan.on)) {
            let what = format!("{:?} is built on itself", self.interface);
            faults.add("interface", what, "name other interfaces below it");
        }
        let is_built = [self.vlan.is_some(), self.bridge.is_some(), self.bond.is_some()];
        if is_built.iter().filter(|is| **is).count() > 1 {
            faults.add(
                "interface",
                "an interface is only one of VLAN, bridge and bond",
                "write one change object each",
            );
        }
        if self.vlan.as_ref().is_some_and(|vlan| !(1..=4094).contains(&vlan.id)) {
            faults.add(Place::Value("vlan", "id".to_owned()), "the number is not from 1 to 4094", "correct the number");
        }
        if self.bond.as_ref().is_some_and(|bond| bond.ports.is_empty()) {
            faults.add(Place::Value("bond", "ports".to_owned()), "the bond has no port", "name at least one interface");
        }
        if self.mtu.is_some_and(|mtu| !(68..=65_535).contains(&mtu)) {
            faults.add("mtu", "`mtu` is not from 68 to 65535", "1500 is usual, 9000 for large packets");
        }
        self.check_addresses(faults);
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let all = By::ALL.into_iter().filter(|by| self.by.is_none_or(|only| only == *by));
        Footprint::of("interface", &self.interface).with_own(all.flat_map(|by| self.files(by)))
    }
}

impl Interface {
    fn check_addresses(&self, faults: &mut Faults) {
        for address in self.addresses.iter().filter(|address| prefixed(address).is_none()) {
            let what = format!("{address:?} is not an address with a prefix");
            faults.add(("addresses", address), what, "write it as in 10.0.0.2/24 or fd00::2/64");
        }
        let mut families = Vec::new();
        for (key, all) in [("gateways", &self.gateways), ("dns", &self.dns)] {
            for text in all {
                match text.parse::<IpAddr>() {
                    Ok(address) if key == "gateways" => families.push(address.is_ipv4()),
                    Ok(_) => {}
                    Err(_) => faults.add((key, text), format!("{text:?} is not an address"), "10.0.0.1 or fd00::1"),
                }
            }
        }
        if families.iter().filter(|is_ipv4| **is_ipv4).count() > 1 || families.iter().filter(|is| !**is).count() > 1 {
            faults.add("gateways", "there are two gateways of a family", "keep one, and use `routes` with `metric`");
        }
        let is_domain = |text: &&String| {
            let text = text.strip_prefix('~').unwrap_or(text);
            text == "." || (!text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || ".-_".contains(c)))
        };
        for domain in self.domains.iter().filter(|domain| !is_domain(domain)) {
            faults.add(("domains", domain), format!("{domain:?} is not a domain"), "for example example.org");
        }
        for route in &self.routes {
            let (to, via) = (prefixed(&route.to), route.via.parse::<IpAddr>());
            let is_network = to.is_some_and(|(address, prefix)| masked(address, prefix) == address);
            if !is_network || to.zip(via.ok()).is_none_or(|((to, _), via)| to.is_ipv4() != via.is_ipv4()) {
                let what = format!("there is no route to {:?} via {:?}", route.to, route.via);
                faults.add("routes", what, "write {to: 10.9.0.0/16, via: 10.0.0.9}, both of the same family");
            }
        }
    }

    /// The interfaces that a bridge or bond joins.
    #[must_use]
    pub fn ports(&self) -> &[String] {
        let of_bridge = self.bridge.as_ref().map(|bridge| bridge.ports.as_slice());
        of_bridge.or_else(|| self.bond.as_ref().map(|bond| bond.ports.as_slice())).unwrap_or_default()
    }

    /// Whether the interface exists only by this content.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.vlan.is_some() || self.bridge.is_some() || self.bond.is_some()
    }

    /// The file of systemd-networkd with the definition of a virtual interface.
    #[must_use]
    pub fn netdev_file(&self) -> String {
        format!("{NETWORKD}/10-cob-{}.netdev", self.interface)
    }

    /// The file of systemd-networkd that adds a VLAN to the interface below it.
    #[must_use]
    pub fn vlan_file(&self, vlan: &Vlan) -> String {
        format!("{NETWORKD}/10-cob-{}.network.d/{}.conf", vlan.on, self.interface)
    }

    /// All files of a program.
    #[must_use]
    pub fn files(&self, by: By) -> Vec<String> {
        let own = by.file(&self.interface);
        let of_networkd = by == By::Networkd;
        let netdev = (of_networkd && self.is_virtual()).then(|| self.netdev_file());
        let ports = self.ports().iter().map(|port| by.file(port));
        let vlan = self.vlan.as_ref().filter(|_| of_networkd).map(|vlan| self.vlan_file(vlan));
        std::iter::once(own).chain(netdev).chain(ports).chain(vlan).collect()
    }
}

/// Whether the kernel and a file name allow the name.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..=MAX_NAME).contains(&text.len()) && text.chars().all(is_plain) && !text.starts_with(['.', '-'])
}

/// An address with its prefix.
#[must_use]
pub fn prefixed(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let prefix = number(prefix).filter(|prefix| *prefix <= longest)?;
    Some((address, prefix))
}

/// Whether an address is in the network of an address with a prefix.
#[must_use]
pub fn is_in_network(address: &str, network: &str) -> bool {
    let Some(((own, prefix), address)) = prefixed(network).zip(address.parse::<IpAddr>().ok()) else { return false };
    own.is_ipv4() == address.is_ipv4() && masked(address, prefix) == masked(own, prefix)
}
