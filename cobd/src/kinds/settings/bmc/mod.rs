//! The kind back end `bmc`: settings of a baseboard management controller.
//!
//! [`wire`] sends requests, [`ipmi`] has the parts of a BMC with their requests. The note of the original state has
//! each part that the content names, and a user that was not there before as such. The record has the parts that may
//! have been changed, until they are given back: later changes of others to these parts stay.

#[cfg(test)]
mod bmc_test;
mod ipmi;
#[cfg(test)]
mod simulator_test;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cob_kinds::{Bmc, BmcBoot, BmcUser};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use self::ipmi::{Boot, Lan, Rights, Slot, Watchdog};
use self::wire::{Ipmitool, Wire};
use super::setting::read_note;
use super::{Entry, Setting, Spec, record};
use crate::kinds::native::NOTE;

/// The file with the record.
const RECORD: &str = "bmc.json";
/// The keys of a look.
const LAN: &str = "lan";
const WATCHDOG: &str = "watchdog";
const BOOT: &str = "boot";
/// The key of a user in a look, before the name.
const USER: &str = "user ";
/// The value of a part that is as in the content.
const AS_WANTED: &str = "as in the content";
/// What stands for a password in a note.
const NOT_NOTED: &str = "not-noted";

/// The back end `bmc`.
#[derive(Debug)]
pub(super) struct BmcSetting;

impl Setting for BmcSetting {
    type Content = Bmc;

    fn spec(&self, Entry { content, own, .. }: Entry<Bmc>) -> Result<Box<dyn Spec>, String> {
        let wire = Box::new(Ipmitool(content.remote.clone()));
        Ok(Box::new(Controller { content, own, wire }))
    }

    fn notes(&self) -> &'static [&'static str] {
        &[NOTE, RECORD]
    }

    /// Passwords stay in memory.
    fn noted(&self, content: &str) -> String {
        let Ok(mut content) = serde_json::from_str::<Value>(content) else { return "{}".to_owned() };
        let users = content.get_mut("users").and_then(Value::as_object_mut);
        let mut passwords: Vec<&mut Value> =
            users.into_iter().flat_map(Map::values_mut).filter_map(|user| user.get_mut("password")).collect();
        for password in &mut passwords {
            **password = NOT_NOTED.into();
        }
        if let Some(password) = content.pointer_mut("/remote/password") {
            *password = NOT_NOTED.into();
        }
        content.to_string()
    }
}

/// A BMC with its content.
#[derive(Debug)]
struct Controller {
    content: Bmc,
    own: PathBuf,
    wire: Box<dyn Wire>,
}

/// The original state of the parts that a content has named.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Before {
    lan: Option<Lan>,
    /// `None`: there was no user of the name.
    #[serde(default)]
    users: BTreeMap<String, Option<Rights>>,
    watchdog: Option<Watchdog>,
    boot: Option<Boot>,
}

/// What the BMC does not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// The parts that may have been changed, by their keys in a look.
    #[serde(default)]
    held: BTreeSet<String>,
    /// The passwords that were set.
    #[serde(default)]
    passwords: BTreeMap<String, Sum>,
    /// The flags that were set for a next boot.
    next_boot: Option<Boot>,
}

/// A sum of a password, with the user and the change object in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sum(String);

impl Sum {
    fn new(own: &Path, user: &str, password: &str) -> Self {
        let mut sum = Sha256::new();
        for part in [own.as_os_str().as_bytes(), user.as_bytes(), password.as_bytes()] {
            sum.update(part.len().to_le_bytes());
            sum.update(part);
        }
        Self(hex::encode(sum.finalize()))
    }
}

impl Before {
    fn read(before: Option<&Value>) -> Result<Self, String> {
        let before = before.map_or_else(|| Ok(Self::default()), Self::deserialize);
        before.map_err(|error| format!("the note of the earlier state can't be read: {error}"))
    }

    /// The keys of its parts.
    fn keys(&self) -> BTreeSet<String> {
        let plain = [(LAN, self.lan.is_some()), (WATCHDOG, self.watchdog.is_some()), (BOOT, self.boot.is_some())];
        let plain = plain.into_iter().filter(|(_, is_there)| *is_there).map(|(key, _)| key.to_owned());
        plain.chain(self.users.keys().map(|name| of_user(name))).collect()
    }

    fn value(&self) -> Result<Value, String> {
        serde_json::to_value(self).map_err(|error| error.to_string())
    }
}

impl Controller {
    fn channel(&self) -> u8 {
        self.content.channel()
    }

    fn wire(&self) -> &dyn Wire {
        self.wire.as_ref()
    }

    fn record(&self) -> Result<Record, String> {
        Ok(record::read(&self.own, RECORD)?.unwrap_or_default())
    }

    /// Changes the record.
    fn note(&self, change: impl FnOnce(&mut Record)) -> Result<(), String> {
        let mut record = self.record()?;
        let earlier = record.clone();
        change(&mut record);
        if record == earlier { Ok(()) } else { record::write(&self.own, RECORD, &record) }
    }

    /// Whether this change object has made the user, as its note says.
    fn has_made(&self, name: &str) -> Result<bool, String> {
        let before = read_note(&self.own).and_then(|(_, before)| Before::read(before.as_ref()).ok());
        let was_not_there = before.is_some_and(|before| before.users.get(name) == Some(&None));
        Ok(was_not_there && self.record()?.held.contains(&of_user(name)))
    }

    /// The original state of the parts that were changed and that the content names no more.
    fn left(&self, before: Before, content: Option<&Bmc>) -> Result<Before, String> {
        let held = self.record()?.held;
        let is_named = |key: &str| content.is_some_and(|content| parts(content).any(|part| part == key));
        let is_left = |key: &str| held.contains(key) && !is_named(key);
        Ok(Before {
            lan: before.lan.filter(|_| is_left(LAN)),
            users: before.users.into_iter().filter(|(name, _)| is_left(&of_user(name))).collect(),
            watchdog: before.watchdog.filter(|_| is_left(WATCHDOG)),
            boot: before.boot.filter(|_| is_left(BOOT)),
        })
    }

    fn slots(&self) -> Result<Vec<Slot>, String> {
        Slot::read(self.wire(), self.channel())
    }

    /// The state of a user; `checks_record`: only a password that was set here counts.
    fn user(&self, slot: Option<&Slot>, name: &str, checks_record: bool) -> Result<Value, String> {
        let Some(slot) = slot else { return Ok(json!("not there")) };
        let mut found = json!({ "privilege": slot.rights.word(), "enabled": slot.rights.enabled });
        if let Some(password) = self.content.users.get(name).and_then(|user| user.password.as_ref()) {
            let is_known = !checks_record || self.has_set(name, password)?;
            // The BMC is asked only then: it may count wrong passwords.
            let is_it = is_known && slot.has_password(self.wire(), password)?;
            found["password"] = json!(if is_it { AS_WANTED } else { "another" });
        }
        Ok(found)
    }

    /// Whether this change object has set the password.
    fn has_set(&self, name: &str, password: &str) -> Result<bool, String> {
        Ok(self.record()?.passwords.get(name) == Some(&Sum::new(&self.own, name, password)))
    }

    /// Whether the boot device was set for the next boot alone: the firmware clears it then.
    fn is_boot_done(&self, wanted: &BmcBoot) -> Result<bool, String> {
        Ok(!wanted.persistent && self.record()?.next_boot.is_some_and(|boot| boot.is(&Boot::of(wanted))))
    }

    /// The state of the parts that the content names, and of the parts that are to be given back.
    fn found(&self, left: &Before, checks_record: bool) -> Result<Value, String> {
        let (wire, content) = (self.wire(), &self.content);
        let mut found = Map::new();
        if let Some(wanted) = &content.lan {
            let lan = Lan::read(wire, self.channel())?;
            let is_it = lan.with(wanted).is(&lan);
            found.insert(LAN.to_owned(), if is_it { json!(AS_WANTED) } else { json!(lan) });
        }
        let slots = if content.users.is_empty() { Vec::new() } else { self.slots()? };
        for name in content.users.keys() {
            let slot = slots.iter().find(|slot| slot.name == *name);
            found.insert(of_user(name), self.user(slot, name, checks_record)?);
        }
        if content.watchdog.is_some() {
            found.insert(WATCHDOG.to_owned(), Watchdog::read(wire)?.shown());
        }
        if let Some(wanted) = &content.boot {
            let is_done = checks_record && self.is_boot_done(wanted)?;
            let boot = if is_done { Boot::of(wanted) } else { Boot::read(wire)? };
            found.insert(BOOT.to_owned(), json!(boot.word()));
        }
        for key in left.keys() {
            found.insert(key, json!("no more in the content"));
        }
        Ok(Value::Object(found))
    }

    /// Brings a user into the desired state. Whether the user is new.
    fn apply_user(&self, slots: &[Slot], name: &str, user: &BmcUser) -> Result<bool, String> {
        let (wire, rights) = (self.wire(), Rights::of(user.privilege, user.enabled));
        let sum = |password: &str| Sum::new(&self.own, name, password);
        let keep = |password: &str| self.note(|record| drop(record.passwords.insert(name.to_owned(), sum(password))));
        let Some(slot) = slots.iter().find(|slot| slot.name == name) else {
            let password = user.password.as_ref().ok_or_else(no_password)?;
            Slot::free(slots)?.make(wire, self.channel(), name, (password, rights))?;
            return keep(password).map(|()| true);
        };
        if let Some(password) = &user.password
            && (!self.has_set(name, password)? || !slot.has_password(wire, password)?)
        {
            slot.set_password(wire, password)?;
            keep(password)?;
        }
        if (slot.rights.privilege, slot.rights.enabled) != (rights.privilege, rights.enabled) {
            slot.permit(wire, self.channel(), rights)?;
        }
        Ok(false)
    }

    /// Gives parts back.
    fn give_back(&self, left: &Before) -> Result<(), String> {
        let (wire, channel, keys) = (self.wire(), self.channel(), left.keys());
        if let Some(boot) = left.boot
            && !Boot::read(wire)?.is(&boot)
        {
            boot.write(wire)?;
        }
        if let Some(watchdog) = left.watchdog {
            let found = Watchdog::read(wire)?;
            if !watchdog.is(&found) {
                watchdog.write(wire, &found)?;
            }
        }
        let slots = if left.users.is_empty() { Vec::new() } else { self.slots()? };
        for (name, rights) in &left.users {
            let Some(slot) = slots.iter().find(|slot| slot.name == *name) else { continue };
            let given = match rights {
                None => slot.clear(wire, channel),
                Some(rights) if slot.rights == *rights => Ok(()),
                Some(rights) => slot.permit(wire, channel, *rights),
            };
            given.map_err(|why| format!("user {name}: {why}"))?;
        }
        // The address is the last: a session over the network may end with it.
        if let Some(lan) = left.lan {
            let found = Lan::read(wire, channel)?;
            if !lan.is(&found) {
                lan.write(wire, channel, &found)?;
            }
        }
        self.note(|record| {
            record.held.retain(|key| !keys.contains(key));
            record.passwords.retain(|name, _| !left.users.contains_key(name));
            record.next_boot = record.next_boot.filter(|_| left.boot.is_none());
        })
    }
}

/// The keys of the parts that a content names.
fn parts(content: &Bmc) -> impl Iterator<Item = String> + '_ {
    let plain = [(LAN, content.lan.is_some()), (WATCHDOG, content.watchdog.is_some()), (BOOT, content.boot.is_some())];
    let plain = plain.into_iter().filter(|(_, is_named)| *is_named).map(|(key, _)| key.to_owned());
    plain.chain(content.users.keys().map(|name| of_user(name)))
}

/// The key of a user.
fn of_user(name: &str) -> String {
    format!("{USER}{name}")
}

fn no_password() -> String {
    "there is no such user, and a new user needs `password`".to_owned()
}

impl Spec for Controller {
    fn target(&self) -> String {
        format!("{}, channel {}", self.content.name(), self.channel())
    }

    fn look(&self, before: Option<&Value>) -> Result<Option<Value>, String> {
        let left = self.left(Before::read(before)?, Some(&self.content))?;
        self.found(&left, true).map(Some)
    }

    fn seen(&self) -> Result<Option<Value>, String> {
        self.found(&Before::default(), false).map(Some)
    }

    fn before(&self) -> Result<Option<Value>, String> {
        let (wire, content) = (self.wire(), &self.content);
        let slots = if content.users.is_empty() { Vec::new() } else { self.slots()? };
        let rights = |name: &String| slots.iter().find(|slot| slot.name == *name).map(|slot| slot.rights);
        let before = Before {
            lan: content.lan.as_ref().map(|_| Lan::read(wire, self.channel())).transpose()?,
            users: content.users.keys().map(|name| (name.clone(), rights(name))).collect(),
            watchdog: content.watchdog.map(|_| Watchdog::read(wire)).transpose()?,
            boot: content.boot.map(|_| Boot::read(wire)).transpose()?,
        };
        before.value().map(Some)
    }

    fn merged(&self, noted: Option<Value>, found: Option<Value>) -> Result<Option<Value>, String> {
        let (noted, found) = (Before::read(noted.as_ref())?, Before::read(found.as_ref())?);
        let held = self.record()?.held;
        // A part that was given back is noted anew.
        let is_held = |key: &str| held.contains(key);
        let noted = Before {
            lan: noted.lan.filter(|_| is_held(LAN)),
            users: noted.users.into_iter().filter(|(name, _)| is_held(&of_user(name))).collect(),
            watchdog: noted.watchdog.filter(|_| is_held(WATCHDOG)),
            boot: noted.boot.filter(|_| is_held(BOOT)),
        };
        let merged = Before {
            lan: noted.lan.or(found.lan),
            users: found.users.into_iter().chain(noted.users).collect(),
            watchdog: noted.watchdog.or(found.watchdog),
            boot: noted.boot.or(found.boot),
        };
        merged.value().map(Some)
    }

    fn wanted(&self) -> Value {
        let content = &self.content;
        let mut wanted = Map::new();
        if content.lan.is_some() {
            wanted.insert(LAN.to_owned(), json!(AS_WANTED));
        }
        for (name, user) in &content.users {
            let rights = Rights::of(user.privilege, user.enabled);
            let mut value = json!({ "privilege": rights.word(), "enabled": user.enabled });
            if user.password.is_some() {
                value["password"] = json!(AS_WANTED);
            }
            wanted.insert(format!("{USER}{name}"), value);
        }
        if let Some(watchdog) = &content.watchdog {
            wanted.insert(WATCHDOG.to_owned(), Watchdog::default().with(watchdog).shown());
        }
        if let Some(boot) = &content.boot {
            wanted.insert(BOOT.to_owned(), json!(Boot::of(boot).word()));
        }
        Value::Object(wanted)
    }

    fn hindered(&self) -> Result<(), String> {
        self.wire.is_there()?;
        if self.content.users.is_empty() {
            return Ok(());
        }
        let slots = self.slots()?;
        for (name, user) in &self.content.users {
            let is_there = slots.iter().any(|slot| slot.name == *name);
            if !is_there && user.password.is_none() {
                return Err(format!("user {name}: {}", no_password()));
            }
            if is_there && user.password.is_some() && !user.adopt && !self.has_made(name)? {
                return Err(format!(
                    "user {name}: others made this user, and its password could not be restored; write `adopt: true` \
                     to replace the password, or remove `password`"
                ));
            }
        }
        Ok(())
    }

    fn apply(&self, before: Option<&Value>) -> Result<(), String> {
        let (wire, content) = (self.wire(), &self.content);
        self.note(|record| record.held.extend(parts(content)))?;
        let left = self.left(Before::read(before)?, Some(content))?;
        if !left.keys().is_empty() {
            self.give_back(&left)?;
        }
        let mut slots = None;
        for (name, user) in &content.users {
            let now = slots.map_or_else(|| self.slots(), Ok)?;
            let is_new = self.apply_user(&now, name, user).map_err(|why| format!("user {name}: {why}"))?;
            slots = Some(now).filter(|_| !is_new);
        }
        if let Some(wanted) = &content.watchdog {
            let found = Watchdog::read(wire)?;
            let wanted = found.with(wanted);
            if !wanted.is(&found) {
                wanted.write(wire, &found)?;
            }
        }
        if let Some(wanted) = &content.boot {
            let flags = Boot::of(wanted);
            if !self.is_boot_done(wanted)? && !Boot::read(wire)?.is(&flags) {
                flags.write(wire)?;
            }
            self.note(|record| record.next_boot = (!wanted.persistent).then_some(flags))?;
        }
        // The address is the last: a session over the network may end with it.
        if let Some(wanted) = &content.lan {
            let found = Lan::read(wire, self.channel())?;
            let wanted = found.with(wanted);
            if !wanted.is(&found) {
                wanted.write(wire, self.channel(), &found)?;
            }
        }
        Ok(())
    }

    fn restore(&self, before: Option<&Value>) -> Result<(), String> {
        let left = self.left(Before::read(before)?, None)?;
        self.give_back(&left)?;
        record::delete(&self.own, RECORD)
    }

    fn remark(&self) -> Result<Option<String>, String> {
        let Some(wanted) = self.content.watchdog.filter(|wanted| wanted.armed) else { return Ok(None) };
        if Watchdog::read(self.wire())?.is_running {
            return Ok(None);
        }
        let seconds = wanted.timeout.0.as_secs();
        Ok(Some(format!(
            "the operating system has not started the watchdog: load the kernel module ipmi_watchdog, and set \
             RuntimeWatchdogSec={seconds} in /etc/systemd/system.conf; or write `armed: false`"
        )))
    }
}
