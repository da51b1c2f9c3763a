//! The kind `bmc`: settings of a baseboard management controller, by IPMI.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use cob_types::{CobId, secret};
use schemars::JsonSchema;
use serde::Deserialize;

use super::footprint::Subject;
use super::{Builtin, Content, Faults, Footprint, Place, Time, yes};

/// The longest name of a user.
const MAX_NAME: usize = 16;
/// The longest password of a user.
const MAX_PASSWORD: usize = 20;
/// The largest number of a LAN channel.
const MAX_CHANNEL: u8 = 11;
/// The largest VLAN.
const MAX_VLAN: u16 = 4094;
/// The unit of the watchdog's time in milliseconds.
const WATCHDOG_UNIT: u128 = 100;

/// The content of `bmc`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bmc {
    /// The BMC of another machine, over the network; default: the BMC of this host, through `/dev/ipmi0`.
    pub remote: Option<BmcRemote>,
    /// The number of the LAN channel; default: 1.
    pub channel: Option<u8>,
    /// The address of the BMC.
    pub lan: Option<BmcLan>,
    /// The users, with their names as keys. Users with other names are never changed.
    #[serde(default)]
    pub users: BTreeMap<String, BmcUser>,
    /// What the BMC does if the host stops answering.
    pub watchdog: Option<BmcWatchdog>,
    /// The device from which the machine boots.
    pub boot: Option<BmcBoot>,
}

/// The way to a BMC over the network.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BmcRemote {
    /// Its name or address.
    pub host: String,
    /// Its UDP port; default: 623.
    pub port: Option<u16>,
    /// A user with the privilege `administrator`.
    pub user: String,
    /// The password of the user: a secret, as in `"{{ secret('bmc') }}"`.
    pub password: String,
    /// The protocol: `lanplus` (IPMI 2.0, default) or `lan` (IPMI 1.5).
    #[serde(default)]
    pub protocol: BmcProtocol,
    /// The cipher suite of `lanplus`; default: the best suite that the BMC offers.
    pub cipher_suite: Option<u8>,
}

/// A protocol of IPMI over the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BmcProtocol {
    /// IPMI 2.0, encrypted.
    #[default]
    Lanplus,
    /// IPMI 1.5, not encrypted.
    Lan,
}

impl BmcProtocol {
    /// Its name for `ipmitool`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Lanplus => "lanplus",
            Self::Lan => "lan",
        }
    }
}

/// The address of a BMC.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BmcLan {
    /// Where the address comes from: `static` (default) or `dhcp`.
    #[serde(default)]
    pub source: BmcSource,
    /// The IPv4 address.
    #[schemars(with = "Option<String>")]
    pub address: Option<Ipv4Addr>,
    /// The netmask: `255.255.255.0`.
    #[schemars(with = "Option<String>")]
    pub netmask: Option<Ipv4Addr>,
    /// The router; default: not changed.
    #[schemars(with = "Option<String>")]
    pub gateway: Option<Ipv4Addr>,
    /// The VLAN, 0 for none; default: not changed.
    pub vlan: Option<u16>,
}

/// The origin of the address of a BMC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BmcSource {
    /// The content.
    #[default]
    Static,
    /// A DHCP server.
    Dhcp,
}

/// A user of a BMC.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BmcUser {
    /// The most that the user may do on the LAN channel.
    pub privilege: BmcPrivilege,
    /// Its password: a secret, as in `"{{ secret('bmc') }}"`, of up to 20 characters; required for a new user.
    pub password: Option<String>,
    /// Whether the user may log in; default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Whether the password of a user that others made may be replaced: it can't be restored.
    #[serde(default)]
    pub adopt: bool,
}

/// A privilege of IPMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BmcPrivilege {
    /// To ask for a call back.
    Callback,
    /// To read.
    User,
    /// To switch the power, too.
    Operator,
    /// Everything.
    Administrator,
}

/// The watchdog of a BMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BmcWatchdog {
    /// The longest time without a sign of the operating system: 100ms to 6553s.
    pub timeout: Time,
    /// What the BMC does then.
    pub action: BmcAction,
    /// Whether the operating system is expected to start the watchdog: the check says so if it has not; default: true.
    #[serde(default = "yes")]
    pub armed: bool,
}

/// An action of the watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BmcAction {
    /// An entry in the event log alone.
    None,
    /// A reset.
    Reset,
    /// The power goes off.
    PowerOff,
    /// The power goes off and on.
    PowerCycle,
}

/// The device from which a machine boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BmcBoot {
    /// The device.
    pub device: BmcDevice,
    /// Whether it is for each boot (default), or for the next boot alone.
    #[serde(default = "yes")]
    pub persistent: bool,
    /// Whether it boots by EFI (default), or by a legacy BIOS.
    #[serde(default = "yes")]
    pub efi: bool,
}

/// A kind of device for a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BmcDevice {
    /// As the firmware decides.
    None,
    /// The network.
    Pxe,
    /// The disk.
    Disk,
    /// The CD or DVD.
    Cdrom,
    /// The setup of the firmware.
    Setup,
    /// A floppy disk or another removable medium.
    Removable,
}

impl BmcWatchdog {
    /// The time in tenths of a second.
    #[must_use]
    pub fn tenths(&self) -> Option<u16> {
        let (ms, unit) = (self.timeout.0.as_millis(), WATCHDOG_UNIT);
        u16::try_from(ms / unit).ok().filter(|tenths| *tenths > 0 && ms % unit == 0)
    }
}

impl Bmc {
    /// The number of the LAN channel.
    #[must_use]
    pub fn channel(&self) -> u8 {
        self.channel.unwrap_or(1)
    }

    /// The BMC for people, unique on the host.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.remote {
            Some(remote) => format!("the BMC at {}:{}", remote.host, remote.port()),
            None => "the BMC of the host".to_owned(),
        }
    }
}

impl BmcRemote {
    /// Its UDP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(623)
    }

    fn check(&self, faults: &mut Faults) {
        let at = |key: &str| Place::Path(vec!["remote".to_owned(), key.to_owned()]);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c);
        if self.host.is_empty() || self.host.starts_with('-') || !self.host.chars().all(is_plain) {
            let what = format!("{:?} is neither a name nor an address", self.host);
            faults.add(at("host"), what, "write for example 10.0.1.1");
        }
        if !is_name(&self.user) {
            faults.add(at("user"), format!("{:?} is not a name of a user", self.user), NAME_HELP);
        }
        check_password(at("password"), &self.password, faults);
        if self.cipher_suite.is_some() && self.protocol == BmcProtocol::Lan {
            let help = "remove the key, or write `protocol: lanplus`";
            faults.add(at("cipher_suite"), "`lan` has no cipher suites", help);
        }
    }
}

impl BmcLan {
    fn check(&self, faults: &mut Faults) {
        let at = |key: &str| Place::Path(vec!["lan".to_owned(), key.to_owned()]);
        let given = [("address", self.address), ("netmask", self.netmask), ("gateway", self.gateway)];
        for (key, value) in given {
            match (self.source, value) {
                (BmcSource::Dhcp, Some(_)) => {
                    faults.add(at(key), format!("`{key}` comes by DHCP"), "remove the key, or write `source: static`");
                }
                (BmcSource::Static, None) if key != "gateway" => {
                    faults.add("lan", format!("`{key}` is missing"), "a static address needs `address` and `netmask`");
                }
                (BmcSource::Static | BmcSource::Dhcp, _) => {}
            }
        }
        let is_mask = |mask: Ipv4Addr| mask.to_bits().leading_ones() + mask.to_bits().trailing_zeros() == 32;
        if self.netmask.is_some_and(|mask| !is_mask(mask) || mask.is_unspecified()) {
            let what = format!("{} is not a netmask", self.netmask.unwrap_or(Ipv4Addr::UNSPECIFIED));
            faults.add(at("netmask"), what, "write for example 255.255.255.0");
        }
        if let (Some(address), Some(mask), Some(gateway)) = (self.address, self.netmask, self.gateway) {
            let bits = |of: Ipv4Addr| of.to_bits() & mask.to_bits();
            if !gateway.is_unspecified() && bits(address) != bits(gateway) {
                let what = format!("the router {gateway} is not in the network of {address}");
                faults.add(at("gateway"), what, "write a router in the network, or 0.0.0.0 for none");
            }
        }
        if self.vlan.is_some_and(|vlan| vlan > MAX_VLAN) {
            faults.add(at("vlan"), "it is not a VLAN", format!("1 to {MAX_VLAN}, or 0 for none"));
        }
    }
}

/// The help for a name of a user.
const NAME_HELP: &str = "1 to 16 letters, digits, `_`, `.`, `@` and `-`, no `-` at the beginning";

fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_.@-".contains(c);
    (1..=MAX_NAME).contains(&name.len()) && !name.starts_with('-') && name.chars().all(is_plain)
}

fn check_password(place: Place, password: &str, faults: &mut Faults) {
    if secret::marks(password).next().is_some() {
        // A mark stands for a secret until the daemon has its value.
        return;
    }
    if password.is_empty() || password.len() > MAX_PASSWORD || !password.chars().all(|c| c.is_ascii_graphic()) {
        let what = "the password is empty, too long, or has characters that IPMI does not have";
        faults.add(place, what, format!("1 to {MAX_PASSWORD} printable ASCII characters without blanks"));
    } else {
        faults.warn(
            "open-secret",
            place,
            "all readers of the model see the password",
            "write a secret: `\"{{ secret('NAME') }}\"`",
        );
    }
}

impl Content for Bmc {
    const KIND: Builtin = Builtin { interval_ms: Some(300_000), timeout_ms: 120_000, ..Builtin::setting("bmc") };

    fn check(&self, faults: &mut Faults) {
        if let Some(remote) = &self.remote {
            remote.check(faults);
        }
        if !(1..=MAX_CHANNEL).contains(&self.channel()) {
            let what = format!("{} is not a LAN channel", self.channel());
            faults.add("channel", what, format!("1 to {MAX_CHANNEL}, as `ipmitool channel info N` shows"));
        }
        if self.lan.is_none() && self.users.is_empty() && self.watchdog.is_none() && self.boot.is_none() {
            faults.add(Place::Content, "there is nothing to set", "write `lan`, `users`, `watchdog` or `boot`");
        }
        if let Some(lan) = &self.lan {
            lan.check(faults);
        }
        for (name, user) in &self.users {
            if !is_name(name) {
                faults.add(("users", name), format!("{name:?} is not a name of a user"), NAME_HELP);
            }
            if let Some(password) = &user.password {
                let at = ["users", name, "password"].map(str::to_owned).to_vec();
                check_password(Place::Path(at), password, faults);
            }
            if self.remote.as_ref().is_some_and(|remote| remote.user == *name) {
                let help = "manage it through the local interface, or log in as another user";
                faults.add(("users", name), format!("COB itself logs in as {name}"), help);
            }
        }
        if self.watchdog.is_some_and(|watchdog| watchdog.tenths().is_none()) {
            let at = Place::Path(["watchdog", "timeout"].map(str::to_owned).to_vec());
            faults.add(at, "the watchdog does not have this time", "100ms to 6553s, in steps of 100ms");
        }
    }

    fn footprint(&self, _cob: &CobId) -> Footprint {
        let part = |what: String| Subject { sort: "setting of a BMC", name: format!("{what} of {}", self.name()) };
        let mut parts: Vec<Subject> = self.users.keys().map(|name| part(format!("user {name}"))).collect();
        parts.extend(self.lan.as_ref().map(|_| part(format!("address on channel {}", self.channel()))));
        parts.extend(self.watchdog.map(|_| part("watchdog".to_owned())));
        parts.extend(self.boot.map(|_| part("boot device".to_owned())));
        Footprint { parts, ..Footprint::default() }
    }
}
