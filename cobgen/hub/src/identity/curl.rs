//! Requests by `curl`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use cob_processes::CurlOptions;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

/// The longest request in seconds.
const LONGEST: u64 = 10;
/// The most bytes of an answer.
const LARGEST: u64 = 1 << 20;
/// The most bytes of a message.
const SHOWN: u64 = 1000;

/// The end of `curl`.
#[derive(Debug)]
pub(super) struct Answer {
    /// The exit status (curl(1), "EXIT CODES"); absent: a signal ended it.
    pub(super) code: Option<i32>,
    /// The answer of the server.
    pub(super) body: Vec<u8>,
    /// The message of `curl`.
    pub(super) message: String,
}

/// The options that all requests share.
pub(super) fn options(protocols: &str, url: &str, authorities: Option<&Path>) -> CurlOptions {
    let options = CurlOptions::default()
        .flag("silent")
        .flag("show-error")
        .flag("globoff")
        .set("proto", protocols)
        .set("max-redirs", "0")
        .set("max-time", &LONGEST.to_string())
        .set("max-filesize", &LARGEST.to_string())
        .set("url", url);
    match authorities {
        Some(file) => options.set("cacert", &file.to_string_lossy()),
        None => options,
    }
}

/// Runs `curl`.
///
/// # Errors
///
/// The reason why there is no answer.
pub(super) async fn run(options: &CurlOptions) -> Result<Answer, String> {
    let failed = |error: std::io::Error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            return "the program `curl` is not installed on the hub's machine".to_owned();
        }
        format!("curl: {error}")
    };
    let mut child = Command::new("curl")
        .args(CurlOptions::ARGUMENTS)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let (given, body, message) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let finish = async {
        if let Some(mut given) = given {
            // A program that ends early says why.
            let _ = given.write_all(options.text().as_bytes()).await;
        }
        let (body, message) = tokio::try_join!(whole(body, LARGEST), whole(message, SHOWN))?;
        let code = child.wait().await?.code();
        let message = String::from_utf8_lossy(&message);
        let message = message.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().to_owned();
        Ok(Answer { code, body, message })
    };
    match tokio::time::timeout(Duration::from_secs(LONGEST + 2), finish).await {
        Ok(answer) => answer.map_err(failed),
        Err(_) => Err(format!("curl did not end within {LONGEST} s")),
    }
}

async fn whole(stream: Option<impl tokio::io::AsyncRead + Unpin>, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}
