//! Settings of a BMC in memory, which does what the simulator does not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::wire::{Answer, Request};
use super::*;
use crate::kinds::native::Native;

/// A BMC with few places for users, whose free places have no names.
#[derive(Debug, Default)]
struct Memory {
    /// Parameters of LAN (12) and boot (0).
    parameters: BTreeMap<(u8, u8), Vec<u8>>,
    users: BTreeMap<u8, (String, Vec<u8>, bool, u8)>,
    watchdog: [u8; 6],
    /// Commands that change something.
    changes: Vec<(u8, u8)>,
}

#[derive(Debug, Clone, Default)]
struct InMemory(Rc<RefCell<Memory>>);

const PLACES: u8 = 4;

impl Memory {
    fn answer(&mut self, request: &Request) -> Answer {
        let data = &request.data;
        let ok = || Answer::Data(Vec::new());
        if matches!((request.net, request.command), (12 | 0, 1 | 8) | (6, 0x24 | 0x43 | 0x45)) {
            self.changes.push((request.net, request.command));
        }
        match (request.net, request.command) {
            (12, 1) if data[1] == 0 => Answer::Refused(Some(0x80)),
            (12, 1) => {
                self.parameters.insert((12, data[1]), data[2..].to_vec());
                ok()
            }
            (12, 2) => {
                let empty = if data[1] == 4 { vec![1] } else { vec![0; 4] };
                let value = self.parameters.get(&(12, data[1])).unwrap_or(&empty);
                Answer::Data([vec![0x11], value.clone()].concat())
            }
            (0, 8) => {
                self.parameters.insert((0, data[0]), data[1..].to_vec());
                ok()
            }
            (0, 9) => {
                let value = self.parameters.get(&(0, data[0])).cloned().unwrap_or_else(|| vec![0; 5]);
                Answer::Data([vec![1, data[0]], value].concat())
            }
            (6, 0x24) => {
                self.watchdog.copy_from_slice(data);
                ok()
            }
            (6, 0x25) => Answer::Data([self.watchdog.to_vec(), vec![0, 0]].concat()),
            (6, 0x44) => {
                let (enabled, access) =
                    self.users.get(&data[1]).map_or((0x80, 0), |user| (if user.2 { 0x40 } else { 0x80 }, user.3));
                Answer::Data(vec![PLACES, enabled, 0, access])
            }
            (6, 0x46) => match self.users.get(&data[0]).filter(|user| !user.0.is_empty()) {
                Some(user) => Answer::Data(user.0.bytes().chain([0]).collect()),
                None => Answer::Refused(Some(0xCC)),
            },
            (6, 0x45) => {
                let name = String::from_utf8_lossy(&data[1..]).trim_end_matches('\0').to_owned();
                self.users.entry(data[0]).or_default().0 = name;
                ok()
            }
            (6, 0x43) => {
                self.users.entry(data[1]).or_default().3 = data[0] & 0x70 | data[2];
                ok()
            }
            (6, 0x47) => {
                let user = self.users.entry(data[0] & 0x7F).or_default();
                match data[1] {
                    2 => user.1 = data[2..].to_vec(),
                    3 if user.1 != data[2..] => return Answer::Refused(Some(0x80)),
                    3 => {}
                    operation => user.2 = operation == 1,
                }
                ok()
            }
            (_, _) => Answer::Refused(Some(0xC1)),
        }
    }
}

impl Wire for InMemory {
    fn is_there(&self) -> Result<(), String> {
        Ok(())
    }

    fn ask(&self, requests: &[Request]) -> Result<Vec<Answer>, String> {
        let mut memory = self.0.borrow_mut();
        Ok(requests.iter().map(|request| memory.answer(request)).collect())
    }
}

/// A BMC with its change object.
struct Case {
    own: tempfile::TempDir,
    bmc: InMemory,
}

impl Case {
    fn new() -> Self {
        Self { own: tempfile::tempdir().expect("a folder"), bmc: InMemory::default() }
    }

    fn controller(&self, content: &str) -> Controller {
        let content = cob_kinds::read(content).expect("good");
        Controller { content, own: self.own.path().to_owned(), wire: Box::new(self.bmc.clone()) }
    }

    /// Applies a content twice, and restores the earlier state twice. The commands of the first apply.
    fn there_and_back(&self, content: &str) -> Vec<(u8, u8)> {
        let controller = self.controller(content);
        let before = controller.before().expect("seen");
        self.bmc.0.borrow_mut().changes.clear();
        controller.apply(before.as_ref()).expect("applied");
        let first = std::mem::take(&mut self.bmc.0.borrow_mut().changes);
        assert_eq!(controller.look(before.as_ref()).expect("seen"), Some(controller.wanted()));
        assert_eq!(controller.seen().expect("seen"), Some(controller.wanted()));
        controller.apply(before.as_ref()).expect("applied");
        assert_eq!(self.bmc.0.borrow().changes, [], "nothing differs");
        controller.restore(before.as_ref()).expect("restored");
        controller.restore(before.as_ref()).expect("restored");
        assert_eq!(controller.before().expect("seen"), before);
        first
    }
}

#[test]
fn a_boot_device_is_set_for_each_boot_and_restored() {
    let case = Case::new();
    case.bmc.0.borrow_mut().parameters.insert((0, 5), vec![0xC0, 0x08, 0, 0, 0]);
    let first = case.there_and_back(r#"{"boot":{"device":"pxe"}}"#);
    assert_eq!(first, [(0, 8), (0, 8)], "the bit that keeps the flags, and the flags");
    let restored = case.bmc.0.borrow().parameters[&(0, 5)].clone();
    assert_eq!(restored, [0xC0, 0x08, 0, 0, 0]);
    let controller = case.controller(r#"{"boot":{"device":"cdrom","persistent":false,"efi":false}}"#);
    let before = controller.before().expect("seen");
    controller.apply(before.as_ref()).expect("applied");
    assert_eq!(case.bmc.0.borrow().parameters[&(0, 5)], [0x80, 0x14, 0, 0, 0]);
    // The machine boots.
    case.bmc.0.borrow_mut().parameters.insert((0, 5), vec![0, 0, 0, 0, 0]);
    assert_eq!(controller.look(before.as_ref()).expect("seen"), Some(controller.wanted()));
    assert_eq!(controller.seen().expect("seen"), Some(json!({"boot": "as the firmware decides"})));
}

#[test]
fn a_running_watchdog_goes_on() {
    let case = Case::new();
    case.bmc.0.borrow_mut().watchdog = [0x44, 0x11, 50, 0, 0xE8, 0x03];
    let controller = case.controller(r#"{"watchdog":{"timeout":"30s","action":"power-cycle"}}"#);
    let before = controller.before().expect("seen");
    controller.apply(before.as_ref()).expect("applied");
    // The interrupt would come after the action.
    assert_eq!(case.bmc.0.borrow().watchdog, [0x44, 0x03, 0, 0, 0x2C, 0x01]);
    assert_eq!(controller.remark(), Ok(None));
    controller.restore(before.as_ref()).expect("restored");
    assert_eq!(case.bmc.0.borrow().watchdog, [0x44, 0x11, 50, 0, 0xE8, 0x03]);
    case.bmc.0.borrow_mut().watchdog = [0x04, 0x01, 0, 0, 0xE8, 0x03];
    let remark = controller.remark().expect("seen").expect("a remark");
    assert!(remark.contains("RuntimeWatchdogSec=30"), "{remark}");
}

#[test]
fn an_address_by_dhcp_is_any_address() {
    let case = Case::new();
    let lan = |keys: &str| format!(r#"{{"lan":{{{keys}}}}}"#);
    assert_eq!(case.there_and_back(&lan(r#""address":"10.0.0.5","netmask":"255.0.0.0""#)).len(), 5);
    assert_eq!(case.there_and_back(&lan(r#""source":"dhcp""#)).len(), 4);
    case.bmc.0.borrow_mut().parameters.insert((12, 3), vec![10, 0, 0, 9]);
    assert_eq!(case.there_and_back(&lan(r#""source":"dhcp","vlan":5"#)).len(), 5);
}

#[test]
fn users_get_free_places_and_leave_them() {
    let case = Case::new();
    let theirs = ("theirs".to_owned(), b"secret".to_vec(), true, 0x14);
    case.bmc.0.borrow_mut().users.insert(2, theirs.clone());
    let keys = r#"{"users":{"a":{"privilege":"user","password":"p"},
        "b":{"privilege":"operator","password":"a-long-password-of-b","enabled":false}}}"#;
    case.there_and_back(keys);
    assert_eq!(case.bmc.0.borrow().users[&2], theirs);
    let controller = case.controller(keys);
    let before = controller.before().expect("seen");
    controller.apply(before.as_ref()).expect("applied");
    let users = case.bmc.0.borrow().users.clone();
    assert_eq!((users[&3].0.as_str(), users[&3].2, users[&3].3), ("a", true, 0x12));
    assert_eq!((users[&4].0.as_str(), users[&4].1.len(), users[&4].2, users[&4].3), ("b", 20, false, 0x03));
    // Others change a password.
    case.bmc.0.borrow_mut().users.get_mut(&3).expect("there").1 = vec![0; 16];
    let found = controller.look(before.as_ref()).expect("seen").expect("there");
    assert_eq!(found["user a"]["password"], "another");
    let full = case.controller(r#"{"users":{"c":{"privilege":"user","password":"p"}}}"#);
    let why = full.apply(full.before().expect("seen").as_ref()).expect_err("full");
    assert!(why.contains("all 3 places for users"), "{why}");
}

#[test]
fn a_part_that_was_given_back_belongs_to_others() {
    let case = Case::new();
    let both = case.controller(
        r#"{"users":{"a":{"privilege":"user","password":"p"}},"watchdog":{"timeout":"9s","action":"none"}}"#,
    );
    let before = both.before().expect("seen");
    both.apply(before.as_ref()).expect("applied");
    let one = case.controller(r#"{"watchdog":{"timeout":"9s","action":"none"}}"#);
    let found = one.look(before.as_ref()).expect("seen").expect("there");
    assert_eq!(found["user a"], "no more in the content");
    one.apply(before.as_ref()).expect("applied");
    assert_eq!(one.look(before.as_ref()).expect("seen"), Some(one.wanted()));
    // Others make a user of the name.
    case.bmc.0.borrow_mut().users.insert(2, ("a".to_owned(), vec![1; 16], true, 0x14));
    assert_eq!(one.look(before.as_ref()).expect("seen"), Some(one.wanted()));
    assert!(!both.has_made("a").expect("read"));
    let merged = both.merged(before, both.before().expect("seen")).expect("merged").expect("a note");
    assert_eq!(merged["users"]["a"]["privilege"], 4, "the note is about the user of others");
    one.restore(Some(&merged)).expect("restored");
    assert_eq!(case.bmc.0.borrow().users[&2].0, "a");
}

#[test]
fn notes_have_no_passwords_and_a_former_bmc_is_refused() {
    let content = r#"{"remote":{"host":"h","user":"u","password":"p-remote"},
        "users":{"a":{"privilege":"user","password":"p-user"}}}"#;
    let noted = Setting::noted(&BmcSetting, content);
    assert!(!noted.contains("p-remote") && !noted.contains("p-user"), "{noted}");
    Native::accept(&BmcSetting, &noted).expect("it can be read again");
    let remote = cob_kinds::read::<Bmc>(&noted).expect("good").remote;
    let why = Ipmitool(remote).is_there().expect_err("refused");
    assert!(why.contains("the former BMC at h") || why.contains("not found"), "{why}");
}
