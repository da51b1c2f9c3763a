//! Requests to a BMC, by the program `ipmitool`.
//!
//! All requests of a call share a session, and go as bytes through the standard input: no argument has a password, and
//! no text for people has to be read.

use std::fmt::Write as _;
use std::process::Command;

use cob_kinds::BmcRemote;

use super::NOT_NOTED;
use crate::kinds::native::{needs_program, run_bounded};

const PROGRAM: &str = "ipmitool";
/// The request `Get Device ID`. Its answer divides the answers of the other requests.
const MARK: &str = "raw 0x06 0x01\n";
/// What a refused request leaves on the standard error: `… (channel=0x0 netfn=0x6 lun=0x0 cmd=0x47 rsp=0xcc): …`.
const REFUSED: &str = "Unable to send RAW command (";

/// A request of IPMI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// The group of commands.
    pub(super) net: u8,
    pub(super) command: u8,
    pub(super) data: Vec<u8>,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Data(Vec<u8>),
    /// The completion code. `None`: the BMC did not answer.
    Refused(Option<u8>),
}

/// A way to a BMC.
pub(super) trait Wire: std::fmt::Debug {
    /// Whether the way can exist.
    fn is_there(&self) -> Result<(), String>;

    /// The answers to the requests, in their order. A refused request does not end the session.
    fn ask(&self, requests: &[Request]) -> Result<Vec<Answer>, String>;
}

/// The program `ipmitool`, for the BMC of this host or of another machine.
#[derive(Debug)]
pub(super) struct Ipmitool(pub(super) Option<BmcRemote>);

impl Request {
    pub(super) fn new(net: u8, command: u8, data: impl Into<Vec<u8>>) -> Self {
        Self { net, command, data: data.into() }
    }
}

impl Answer {
    /// The data, which have at least `least` bytes.
    pub(super) fn data(self, what: &str, least: usize) -> Result<Vec<u8>, String> {
        match self {
            Self::Data(data) if data.len() >= least => Ok(data),
            Self::Data(data) => {
                Err(format!("the BMC answers to {what} with {} bytes, and {least} are needed", data.len()))
            }
            Self::Refused(code) => Err(refusal(what, code)),
        }
    }
}

/// The text about a refused request.
pub(super) fn refusal(what: &str, code: Option<u8>) -> String {
    let Some(code) = code else { return format!("the BMC does not answer to {what}") };
    let meaning = match code {
        0x80 => "it does not have this parameter",
        0x82 => "it can't be changed",
        0xC1 => "it does not know this command",
        0xC0 => "it is busy",
        0xC9 | 0xCC => "it does not accept this value",
        0xD4 => "the user of the session may not do so",
        0xD5 => "not possible in its present state",
        _ => "see the table of completion codes of IPMI",
    };
    format!("the BMC refuses {what}: {meaning} (completion code 0x{code:02x})")
}

impl Wire for Ipmitool {
    fn is_there(&self) -> Result<(), String> {
        needs_program(PROGRAM, PROGRAM)?;
        match &self.0 {
            Some(remote) if remote.password == NOT_NOTED => Err(format!(
                "the password for the former BMC at {} was not kept, so its settings can't return: remove this change \
                 object first, with its former content, and then add it for the other BMC",
                remote.host
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn ask(&self, requests: &[Request]) -> Result<Vec<Answer>, String> {
        self.is_there()?;
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = Command::new(PROGRAM);
        match &self.0 {
            None => {
                command.args(["-I", "open"]);
            }
            Some(remote) => {
                command.args(["-I", remote.protocol.word(), "-H", &remote.host, "-p", &remote.port().to_string()]);
                command.args(["-U", &remote.user, "-L", "ADMINISTRATOR", "-E"]);
                command.env("IPMI_PASSWORD", &remote.password);
                if let Some(suite) = remote.cipher_suite {
                    command.args(["-C", &suite.to_string()]);
                }
            }
        }
        command.args(["exec", "/dev/stdin"]).env("LC_ALL", "C.UTF-8");
        let ran = run_bounded(&mut command, script(requests).as_bytes())?;
        answers(&ran.out, &ran.err, requests.len()).map_err(|why| match &self.0 {
            None => format!("{why}; the local BMC needs the kernel modules ipmi_si and ipmi_devintf"),
            Some(remote) => format!("{} port {}: {why}", remote.host, remote.port()),
        })
    }
}

/// The commands for `ipmitool`.
fn script(requests: &[Request]) -> String {
    let mut script = MARK.to_owned();
    for Request { net, command, data } in requests {
        let _ = write!(script, "raw 0x{net:02x} 0x{command:02x}");
        for byte in data {
            let _ = write!(script, " 0x{byte:02x}");
        }
        script.push('\n');
        script.push_str(MARK);
    }
    script
}

/// The answers in the outputs.
fn answers(out: &str, err: &str, number: usize) -> Result<Vec<Answer>, String> {
    let said = err.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no reason");
    let mut lines = out.lines();
    let Some(mark) = lines.next().filter(|line| !line.trim().is_empty()) else {
        return Err(format!("{PROGRAM} reaches no BMC: {said}"));
    };
    let mut codes = err.lines().filter_map(|line| line.split_once(REFUSED)).map(|(_, rest)| {
        let code = rest.split_once("rsp=0x")?.1;
        u8::from_str_radix(code.get(..2)?, 16).ok()
    });
    let (mut all, mut data) = (Vec::new(), None);
    for line in lines {
        if line != mark {
            // A continued line adds to the bytes of the line before it.
            let bytes: &mut Vec<u8> = data.get_or_insert_default();
            for word in line.split_whitespace() {
                bytes.push(u8::from_str_radix(word, 16).map_err(|_| format!("ipmitool says {line:?}"))?);
            }
            continue;
        }
        all.push(match data.take() {
            Some(bytes) => Answer::Data(bytes),
            None => Answer::Refused(codes.next().flatten()),
        });
    }
    if all.len() == number {
        return Ok(all);
    }
    Err(format!("the BMC ended the session after {} of {number} requests: {said}", all.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_divided_by_the_mark() {
        let mark = " 20 81 02 15 02\n";
        let out = format!("{mark} 01 02\n 03\n{mark}\n{mark}{mark} 0a\n{mark}");
        let err = "Unable to Get Channel Cipher Suites\nUnable to send RAW command (channel=0x0 netfn=0x6 lun=0x0 \
                   cmd=0x46 rsp=0xcc): Invalid data field in request\n";
        let wanted = vec![
            Answer::Data(vec![1, 2, 3]),
            Answer::Data(Vec::new()),
            Answer::Refused(Some(0xCC)),
            Answer::Data(vec![10]),
        ];
        assert_eq!(answers(&out, err, 4), Ok(wanted));
        let silent = "Unable to send RAW command (channel=0x0 netfn=0x6 lun=0x0 cmd=0x46)\n";
        assert_eq!(answers(&format!("{mark}{mark}"), silent, 1), Ok(vec![Answer::Refused(None)]));
    }

    #[test]
    fn a_session_that_ends_early_is_no_answer() {
        let why = answers(" 20 81\n 01\n", "Error: lost\n", 2).expect_err("short");
        assert!(why.contains("after 0 of 2 requests: Error: lost"), "{why}");
        let why = answers("", "Error: Unable to establish LAN session\n", 1);
        assert!(why.expect_err("none").contains("Unable to establish LAN session"));
    }

    #[test]
    fn a_password_is_in_the_input_alone() {
        let request = Request::new(0x06, 0x47, [3, 2, b'p']);
        assert_eq!(script(&[request]), format!("{MARK}raw 0x06 0x47 0x03 0x02 0x70\n{MARK}"));
    }
}
