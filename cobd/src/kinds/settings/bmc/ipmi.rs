//! The parts of a BMC that are set, with their requests.

use std::net::Ipv4Addr;

use cob_kinds::{BmcAction, BmcBoot, BmcDevice, BmcLan, BmcPrivilege, BmcSource, BmcWatchdog};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::wire::{Answer, Request, Wire, refusal};

/// The groups of commands.
const CHASSIS: u8 = 0x00;
const APP: u8 = 0x06;
const TRANSPORT: u8 = 0x0C;

/// Parameters of the LAN.
const IN_PROGRESS: u8 = 0;
const OVER: u8 = 0;
const BEGUN: u8 = 1;
const COMMIT: u8 = 2;
const ADDRESS: u8 = 3;
const SOURCE: u8 = 4;
const MASK: u8 = 6;
const GATEWAY: u8 = 12;
const VLAN: u8 = 20;
const BY_STATIC: u8 = 1;
const BY_DHCP: u8 = 2;
const VLAN_ON: u16 = 0x8000;
const VLAN_ID: u16 = 0x0FFF;

/// Parameters of the boot.
const VALID_BIT_CLEARING: u8 = 3;
const FLAGS: u8 = 5;
/// The BMC does not drop the flags after a minute without an order to the power.
const KEEP_WITHOUT_ORDER: u8 = 0x08;
const VALID: u8 = 0x80;
const PERSISTENT: u8 = 0x40;
const EFI: u8 = 0x20;
const DEVICE: u8 = 0x3C;

/// The use of the watchdog by an operating system.
const BY_SYSTEM: u8 = 4;
const RUNNING: u8 = 0x40;

const MESSAGES: u8 = 0x10;
const LINK: u8 = 0x20;
const CALLBACK_ONLY: u8 = 0x40;

/// The longest password that has the short form.
const SHORT: usize = 16;
const LONG: usize = 20;
/// Operations on a password.
const DISABLE: u8 = 0;
const ENABLE: u8 = 1;
const SET: u8 = 2;
const TEST: u8 = 3;
/// The first number of a user with a name.
const FIRST_USER: u8 = 2;

/// The address of a BMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lan {
    pub(super) source: u8,
    pub(super) address: Ipv4Addr,
    pub(super) netmask: Ipv4Addr,
    pub(super) gateway: Ipv4Addr,
    /// 0: none.
    pub(super) vlan: u16,
}

/// What a user may do on the channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rights {
    /// 1 to 4; others: no access.
    pub(super) privilege: u8,
    pub(super) enabled: bool,
    /// The bits of the access that a content does not name.
    #[serde(default)]
    pub(super) other: u8,
}

/// A place for a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) id: u8,
    /// Empty: free.
    pub(super) name: String,
    pub(super) rights: Rights,
}

/// The watchdog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Watchdog {
    /// Tenths of a second.
    pub(super) timeout: u16,
    pub(super) action: u8,
    pub(super) used_by: u8,
    /// The interrupt before the action, with its time.
    pub(super) pre: [u8; 2],
    #[serde(default)]
    pub(super) is_running: bool,
}

/// The flags of the boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Boot(pub(super) [u8; 5]);

/// The data of an answer, which have at least `least` bytes.
fn ask(wire: &dyn Wire, what: &str, request: Request, least: usize) -> Result<Vec<u8>, String> {
    wire.ask(&[request])?.into_iter().next().unwrap_or(Answer::Refused(None)).data(what, least)
}

/// Sends requests that have to succeed.
fn order(wire: &dyn Wire, requests: &[(&str, Request)]) -> Result<(), String> {
    let sent: Vec<Request> = requests.iter().map(|(_, request)| request.clone()).collect();
    for ((what, _), answer) in requests.iter().zip(wire.ask(&sent)?) {
        if let Answer::Refused(code) = answer {
            return Err(refusal(what, code));
        }
    }
    Ok(())
}

impl Lan {
    pub(super) fn read(wire: &dyn Wire, channel: u8) -> Result<Self, String> {
        let get = |parameter| Request::new(TRANSPORT, 0x02, [channel, parameter, 0, 0]);
        let answers = wire.ask(&[SOURCE, ADDRESS, MASK, GATEWAY, VLAN].map(get))?;
        let names = ["the origin of the address", "the address", "the netmask", "the router", "the VLAN"];
        let mut parts = Vec::new();
        for ((answer, what), length) in answers.into_iter().zip(names).zip([1, 4, 4, 4, 2]) {
            // A revision is before the parameter.
            parts.push(answer.data(&format!("a question about {what}"), 1 + length)?.split_off(1));
        }
        let address = |part: &[u8]| Ipv4Addr::new(part[0], part[1], part[2], part[3]);
        let vlan = u16::from_le_bytes([parts[4][0], parts[4][1]]);
        Ok(Self {
            source: parts[0][0] & 0x0F,
            address: address(&parts[1]),
            netmask: address(&parts[2]),
            gateway: address(&parts[3]),
            vlan: if vlan & VLAN_ON == 0 { 0 } else { vlan & VLAN_ID },
        })
    }

    /// The address that a content names; other parts are as found.
    pub(super) fn with(self, wanted: &BmcLan) -> Self {
        let vlan = wanted.vlan.unwrap_or(self.vlan);
        match wanted.source {
            BmcSource::Dhcp => Self { source: BY_DHCP, vlan, ..self },
            BmcSource::Static => Self {
                source: BY_STATIC,
                address: wanted.address.unwrap_or(self.address),
                netmask: wanted.netmask.unwrap_or(self.netmask),
                gateway: wanted.gateway.unwrap_or(self.gateway),
                vlan,
            },
        }
    }

    /// Whether both are the same setting: with DHCP, a server decides the address.
    pub(super) fn is(&self, other: &Self) -> bool {
        let by_dhcp = self.source == BY_DHCP && other.source == BY_DHCP && self.vlan == other.vlan;
        by_dhcp || self == other
    }

    pub(super) fn write(&self, wire: &dyn Wire, channel: u8, found: &Self) -> Result<(), String> {
        let set = |parameter: u8, data: &[u8]| Request::new(TRANSPORT, 0x01, [&[channel, parameter], data].concat());
        let mut orders = Vec::new();
        let is_dhcp = self.source == BY_DHCP;
        if self.source != found.source && self.source != 0 {
            orders.push(("the origin of the address", set(SOURCE, &[self.source])));
        }
        if self.address != found.address && !is_dhcp {
            orders.push(("the address", set(ADDRESS, &self.address.octets())));
        }
        if self.netmask != found.netmask && !is_dhcp {
            orders.push(("the netmask", set(MASK, &self.netmask.octets())));
        }
        if self.gateway != found.gateway && !is_dhcp {
            orders.push(("the router", set(GATEWAY, &self.gateway.octets())));
        }
        if self.vlan != found.vlan {
            let word = if self.vlan == 0 { 0 } else { self.vlan | VLAN_ON };
            orders.push(("the VLAN", set(VLAN, &word.to_le_bytes())));
        }
        if self.source == 0 && found.source != 0 {
            // Only a BMC that was never set up has no origin, and it need not accept that again.
            wire.ask(&[set(SOURCE, &[0])])?;
        }
        // The mark of a change in progress is optional. Without the commit, its end drops the change on some BMCs.
        wire.ask(&[set(IN_PROGRESS, &[BEGUN])])?;
        let done = order(wire, &orders);
        let end = if done.is_ok() { &[COMMIT, OVER][..] } else { &[OVER] };
        wire.ask(&end.iter().map(|word| set(IN_PROGRESS, &[*word])).collect::<Vec<_>>())?;
        done
    }
}

impl Rights {
    /// Nothing is permitted on the channel.
    const NONE: Self = Self { privilege: 0x0F, enabled: false, other: 0 };

    pub(super) fn of(privilege: BmcPrivilege, enabled: bool) -> Self {
        let privilege = match privilege {
            BmcPrivilege::Callback => 1,
            BmcPrivilege::User => 2,
            BmcPrivilege::Operator => 3,
            BmcPrivilege::Administrator => 4,
        };
        Self { privilege, enabled, other: 0 }
    }

    /// The word for the privilege.
    pub(super) fn word(&self) -> &'static str {
        match self.privilege {
            1 => "callback",
            2 => "user",
            3 => "operator",
            4 => "administrator",
            5 => "oem",
            _ => "no access",
        }
    }

    fn in_answer(data: &[u8]) -> Self {
        let access = data[3];
        // Two bits say whether a user is enabled; older BMCs leave them empty.
        let enabled = match data[1] >> 6 {
            1 => true,
            2 => false,
            _ => access & MESSAGES != 0,
        };
        Self { privilege: access & 0x0F, enabled, other: access & (LINK | CALLBACK_ONLY) }
    }

    /// The requests that give a user these rights.
    fn orders(&self, channel: u8, id: u8) -> [(&'static str, Request); 2] {
        let (messages, operation) = if self.enabled { (MESSAGES, ENABLE) } else { (0, DISABLE) };
        let bits = 0x80 | channel | messages | self.other;
        [
            ("the privilege of the user", Request::new(APP, 0x43, [bits, id, self.privilege])),
            ("whether the user is enabled", Request::new(APP, 0x47, [id, operation])),
        ]
    }
}

impl Slot {
    /// All places for users with names.
    pub(super) fn read(wire: &dyn Wire, channel: u8) -> Result<Vec<Self>, String> {
        let access = |id: u8| Request::new(APP, 0x44, [channel, id]);
        let most = ask(wire, "a question about its users", access(1), 4)?[0] & 0x3F;
        let ids: Vec<u8> = (FIRST_USER..=most).collect();
        let names = ids.iter().map(|id| Request::new(APP, 0x46, [*id]));
        let requests: Vec<Request> = ids.iter().map(|id| access(*id)).chain(names).collect();
        let mut rights = wire.ask(&requests)?;
        let names = rights.split_off(ids.len());
        let mut all = Vec::new();
        for ((id, rights), name) in ids.into_iter().zip(rights).zip(names) {
            // Some BMCs have no name for a free place.
            let name = match name {
                Answer::Data(name) => name,
                Answer::Refused(Some(_)) => Vec::new(),
                Answer::Refused(None) => return Err(refusal("a question about a user", None)),
            };
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            let name = String::from_utf8_lossy(&name[..end]).into_owned();
            let rights = Rights::in_answer(&rights.data("a question about a user", 4)?);
            all.push(Self { id, name, rights });
        }
        Ok(all)
    }

    fn is_free(&self) -> bool {
        self.name.is_empty() && !self.rights.enabled
    }

    /// The first place for a new user.
    pub(super) fn free(all: &[Self]) -> Result<&Self, String> {
        all.iter().find(|slot| slot.is_free()).ok_or_else(|| {
            format!(
                "all {} places for users of the BMC are taken; delete a user by `ipmitool user set name`",
                all.len()
            )
        })
    }

    /// Gives a place to a new user. It is enabled last, when it has its password.
    pub(super) fn make(&self, wire: &dyn Wire, channel: u8, name: &str, user: (&str, Rights)) -> Result<(), String> {
        let (password, rights) = user;
        let [no_access, _] = Rights::NONE.orders(channel, self.id);
        let mut orders = vec![no_access, self.naming(name), self.password(SET, password)];
        orders.extend(rights.orders(channel, self.id));
        order(wire, &orders)
    }

    /// Changes the rights of its user.
    pub(super) fn permit(&self, wire: &dyn Wire, channel: u8, rights: Rights) -> Result<(), String> {
        let rights = Rights { other: self.rights.other, ..rights };
        order(wire, &rights.orders(channel, self.id))
    }

    pub(super) fn set_password(&self, wire: &dyn Wire, password: &str) -> Result<(), String> {
        order(wire, &[self.password(SET, password)])
    }

    /// Whether its user has this password, as far as the BMC tells.
    pub(super) fn has_password(&self, wire: &dyn Wire, password: &str) -> Result<bool, String> {
        let (_, test) = self.password(TEST, password);
        Ok(wire.ask(&[test])?.iter().all(|answer| matches!(answer, Answer::Data(_))))
    }

    /// Removes its user.
    pub(super) fn clear(&self, wire: &dyn Wire, channel: u8) -> Result<(), String> {
        let [access, disable] = Rights::NONE.orders(channel, self.id);
        order(wire, &[disable, access, self.naming("")])
    }

    fn naming(&self, name: &str) -> (&'static str, Request) {
        let mut data = vec![self.id];
        data.extend(name.bytes());
        data.resize(1 + SHORT, 0);
        ("the name of the user", Request::new(APP, 0x45, data))
    }

    fn password(&self, operation: u8, password: &str) -> (&'static str, Request) {
        let (id, length) = if password.len() > SHORT { (0x80 | self.id, LONG) } else { (self.id, SHORT) };
        let mut data = vec![id, operation];
        data.extend(password.bytes());
        data.resize(2 + length, 0);
        ("the password of the user", Request::new(APP, 0x47, data))
    }
}

impl Watchdog {
    pub(super) fn read(wire: &dyn Wire) -> Result<Self, String> {
        let data = ask(wire, "a question about the watchdog", Request::new(APP, 0x25, []), 6)?;
        Ok(Self {
            timeout: u16::from_le_bytes([data[4], data[5]]),
            action: data[1] & 0x07,
            used_by: data[0] & 0x07,
            pre: [data[1] & 0x70, data[2]],
            is_running: data[0] & RUNNING != 0,
        })
    }

    /// The watchdog that a content names; other parts are as found.
    pub(super) fn with(self, wanted: &BmcWatchdog) -> Self {
        let action = match wanted.action {
            BmcAction::None => 0,
            BmcAction::Reset => 1,
            BmcAction::PowerOff => 2,
            BmcAction::PowerCycle => 3,
        };
        let timeout = wanted.tenths().unwrap_or(self.timeout);
        Self { timeout, action, used_by: BY_SYSTEM, ..self }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        (self.timeout, self.action) == (other.timeout, other.action)
    }

    /// Its setting for people.
    pub(super) fn shown(&self) -> Value {
        let action = match self.action {
            0 => "none",
            1 => "reset",
            2 => "power-off",
            3 => "power-cycle",
            _ => "unknown",
        };
        json!({ "timeout": format!("{}.{}s", self.timeout / 10, self.timeout % 10), "action": action })
    }

    /// Sets it. A watchdog that runs goes on, and no other is started: nobody would feed it.
    pub(super) fn write(&self, wire: &dyn Wire, found: &Self) -> Result<(), String> {
        let used_by = if self.used_by == 0 { BY_SYSTEM } else { self.used_by };
        let running = if found.is_running { RUNNING } else { 0 };
        let [interrupt, interval] = self.pre;
        // The interrupt has to come before the action.
        let [interrupt, interval] =
            if u16::from(interval) * 10 < self.timeout { [interrupt, interval] } else { [0, 0] };
        let [low, high] = self.timeout.to_le_bytes();
        let data = [running | used_by, interrupt | self.action, interval, 0, low, high];
        order(wire, &[("the watchdog", Request::new(APP, 0x24, data))])
    }
}

impl Boot {
    pub(super) fn read(wire: &dyn Wire) -> Result<Self, String> {
        let get = Request::new(CHASSIS, 0x09, [FLAGS, 0, 0]);
        // A version and the number of the parameter are before its data.
        let data = ask(wire, "a question about the boot device", get, 4)?;
        let mut flags = [0; 5];
        for (flag, byte) in flags.iter_mut().zip(&data[2..]) {
            *flag = *byte;
        }
        Ok(Self(flags))
    }

    pub(super) fn of(wanted: &BmcBoot) -> Self {
        let number = match wanted.device {
            BmcDevice::None => 0,
            BmcDevice::Pxe => 1,
            BmcDevice::Disk => 2,
            BmcDevice::Cdrom => 5,
            BmcDevice::Setup => 6,
            BmcDevice::Removable => 15,
        };
        let persistent = if wanted.persistent { PERSISTENT } else { 0 };
        let efi = if wanted.efi { EFI } else { 0 };
        Self([VALID | persistent | efi, number << 2, 0, 0, 0])
    }

    /// Whether both have the same effect.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.effect() == other.effect()
    }

    /// `None`: as the firmware decides.
    fn effect(&self) -> Option<(u8, u8)> {
        let [bits, device, ..] = self.0;
        (bits & VALID != 0).then_some((bits & (PERSISTENT | EFI), device & DEVICE))
    }

    pub(super) fn word(&self) -> String {
        let Some((bits, device)) = self.effect() else { return "as the firmware decides".to_owned() };
        let device = match device >> 2 {
            0 => "none",
            1 => "pxe",
            2 | 3 => "disk",
            5 => "cdrom",
            6 => "setup",
            15 => "removable",
            _ => "another device",
        };
        let times = if bits & PERSISTENT != 0 { "at each boot" } else { "at the next boot" };
        let how = if bits & EFI != 0 { "EFI" } else { "legacy BIOS" };
        format!("{device} {times} by {how}")
    }

    pub(super) fn write(&self, wire: &dyn Wire) -> Result<(), String> {
        let set = |parameter: u8, data: &[u8]| Request::new(CHASSIS, 0x08, [&[parameter], data].concat());
        // Not all BMCs have this parameter.
        wire.ask(&[set(VALID_BIT_CLEARING, &[KEEP_WITHOUT_ORDER])])?;
        order(wire, &[("the boot device", set(FLAGS, &self.0))])
    }
}
