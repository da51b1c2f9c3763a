//! Sends a message: to a command, by a webhook, by mail.

use std::process::Stdio;
use std::time::Duration;

use cob_processes::CurlOptions;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::config::Way;
use super::outbox::Message;
use crate::words::{clean_to, utc};

/// How long a message may take.
const LIMIT: Duration = Duration::from_secs(60);
/// The longest output of a program that is shown, in bytes.
const SHOWN: u64 = 1000;

/// Sends a message.
///
/// # Errors
/// The reason, in words: the receiver has not confirmed the message.
pub async fn send(way: &Way, message: &Message, now_ns: u64) -> Result<(), String> {
    let json = serde_json::to_string(message).map_err(|e| e.to_string())?;
    match way {
        Way::Command(command) => {
            let mut shell = Command::new("/bin/sh");
            shell.arg("-c").arg(command).env("COB_TITLE", &message.title);
            run(shell, json.as_bytes()).await
        }
        Way::Webhook { url, secret } => {
            let mut curl = Command::new("curl");
            curl.args(CurlOptions::ARGUMENTS);
            run(curl, request(url, secret.as_deref(), &json, now_ns).text().as_bytes()).await
        }
        Way::Mail { to } => {
            let mut sendmail = Command::new("sendmail");
            sendmail.args(["-t", "-oi"]).env("PATH", with_sbin());
            run(sendmail, mail(to, message).as_bytes()).await
        }
    }
}

/// `sendmail` is often outside the path of users.
fn with_sbin() -> String {
    format!("{}:/usr/sbin:/usr/lib", std::env::var("PATH").unwrap_or_default())
}

/// The options of `curl`. The signature covers time and body, as at large providers of webhooks: a receiver can refuse
/// altered and old messages.
fn request(url: &str, secret: Option<&[u8]>, json: &str, now_ns: u64) -> CurlOptions {
    let seconds = now_ns / 1_000_000_000;
    let options = CurlOptions::default()
        .flag("fail")
        .flag("silent")
        .flag("show-error")
        .set("url", url)
        .set("request", "POST")
        .set("header", "Content-Type: application/json")
        .set("header", &format!("X-COB-Time: {seconds}"))
        .set("data-raw", json)
        .set("max-time", &(LIMIT.as_secs() - 5).to_string())
        .set("max-redirs", "0")
        .set("proto", "=http,https")
        .set("output", "/dev/null");
    match secret {
        Some(secret) => options.set("header", &format!("X-COB-Signature: sha256={}", signature(secret, seconds, json))),
        None => options,
    }
}

/// HMAC-SHA256 (RFC 2104) over `SECONDS.BODY`, in hexadecimal.
fn signature(secret: &[u8], seconds: u64, body: &str) -> String {
    let Ok(mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    hex::encode(mac.chain_update(format!("{seconds}.{body}")).finalize().into_bytes())
}

fn mail(to: &str, message: &Message) -> String {
    // A header has ASCII letters alone (RFC 5322).
    let title: String = message.title.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect();
    let mut text = format!(
        "To: {to}\nSubject: [cob] {}\nAuto-Submitted: auto-generated\nMIME-Version: 1.0\n\
         Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit\n\n",
        clean_to(&title, 200)
    );
    for notice in &message.notices {
        text.push_str(&format!("{}  {}\n{}\n", utc(notice.at_ns), notice.kind.word(), notice.text));
        if !notice.next.is_empty() {
            text.push_str(&format!("Next: {}\n", notice.next));
        }
        text.push('\n');
    }
    if message.dropped > 0 {
        text.push_str(&format!("{} earlier notices were dropped.\n", message.dropped));
    }
    if message.further > 0 {
        text.push_str(&format!("{} notices follow.\n", message.further));
    }
    text
}

/// Runs a program with this input. It ends with its process group when the time is over.
async fn run(mut command: Command, input: &[u8]) -> Result<(), String> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let failed = |error: std::io::Error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            format!("{name} is not installed on this machine")
        } else {
            format!("{name}: {error}")
        }
    };
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    let (given, said) = (child.stdin.take(), child.stderr.take());
    let finish = async {
        if let Some(mut to) = given {
            // A program that ends early may leave its input.
            let _ = to.write_all(input).await;
        }
        let mut error = Vec::new();
        if let Some(said) = said {
            said.take(SHOWN).read_to_end(&mut error).await?;
        }
        std::io::Result::Ok((child.wait().await?, error))
    };
    match tokio::time::timeout(LIMIT, finish).await {
        Ok(done) => {
            let (status, error) = done.map_err(failed)?;
            if status.success() {
                return Ok(());
            }
            let error = String::from_utf8_lossy(&error);
            let error = error.trim();
            Err(format!("{name}: {status}{}{}", if error.is_empty() { "" } else { ": " }, clean_to(error, 500)))
        }
        Err(_) => {
            if let Some(group) = group {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            Err(format!("{name} did not end within {} s", LIMIT.as_secs()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(title: &str) -> Message {
        Message { title: title.to_owned(), notices: Vec::new(), dropped: 0, further: 0 }
    }

    #[tokio::test]
    async fn a_command_gets_the_message() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("got");
        let way = Way::Command(format!("cat > {0}; echo \"$COB_TITLE\" >> {0}", file.display()));
        assert_eq!(send(&way, &message("a \"b\"\n"), 0).await, Ok(()));
        let got = std::fs::read_to_string(&file).expect("the message");
        assert_eq!(got, "{\"title\":\"a \\\"b\\\"\\n\",\"notices\":[]}a \"b\"\n\n");
        let failed = send(&Way::Command("echo no >&2; exit 3".to_owned()), &message("x"), 0).await;
        assert_eq!(failed, Err("/bin/sh: exit status: 3: no".to_owned()));
    }

    #[test]
    fn a_signature_covers_time_and_body() {
        // RFC 4231, test case 2, has the same construction: key "Jefe".
        let of = |secret: &str, seconds, body| signature(secret.as_bytes(), seconds, body);
        assert_eq!(of("Jefe", 1, "x").len(), 64);
        assert_ne!(of("Jefe", 1, "x"), of("Jefe", 2, "x"));
        assert_ne!(of("Jefe", 1, "x"), of("Jefe", 1, "y"));
        let options = request("https://example.org/a\"b", Some(b"secret"), "{\"a\":\"b\\n\"}", 7_000_000_000);
        let text = options.text();
        assert!(text.contains("url = \"https://example.org/a\\\"b\"\n"), "{text}");
        assert!(text.contains("data-raw = \"{\\\"a\\\":\\\"b\\\\n\\\"}\"\n"), "{text}");
        assert!(text.contains("header = \"X-COB-Time: 7\"\n") && text.contains("X-COB-Signature: sha256="), "{text}");
    }

    #[test]
    fn a_title_adds_no_header_to_a_mail() {
        let text = mail("ops@example.org", &message("x\nBcc: all@example.org"));
        let head = text.split("\n\n").next().expect("a head");
        assert!(!head.lines().any(|line| line.starts_with("Bcc")), "{head}");
    }
}
