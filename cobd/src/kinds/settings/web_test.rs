//! A web server for tests: a thread that sends files from memory, with the faults that real servers have.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The answer to a request for a path.
#[derive(Debug, Clone)]
pub(super) enum Page {
    /// A file; parts of it can be asked for.
    File(Vec<u8>),
    /// A file that the server only sends as a whole.
    Whole(Vec<u8>),
    /// A connection that ends after half of the bytes.
    Half(Vec<u8>),
    /// Bytes without an end.
    Endless,
    /// A redirect.
    To(String),
    /// A file for this user and password, in base64.
    For(&'static str, Vec<u8>),
}

/// A server. It ends with the test.
#[derive(Debug)]
pub(super) struct Web {
    address: SocketAddr,
    pages: Arc<Mutex<BTreeMap<String, Page>>>,
    /// The first lines and the ranges of all requests.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Web {
    pub(super) fn new(pages: &[(&str, Page)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let pages = pages.iter().map(|(path, page)| ((*path).to_owned(), page.clone())).collect();
        let web = Self { address, pages: Arc::new(Mutex::new(pages)), asked: Arc::default() };
        let (pages, asked) = (web.pages.clone(), web.asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (pages, asked) = (pages.clone(), asked.clone());
                // A client that was killed reads no answer.
                std::thread::spawn(move || _ = answer(&stream, &pages, &asked));
            }
        });
        web
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn set(&self, path: &str, page: Page) {
        self.pages.lock().expect("held").insert(path.to_owned(), page);
    }

    /// The requests since the last call.
    pub(super) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().expect("held"))
    }
}

fn answer(
    stream: &TcpStream,
    pages: &Mutex<BTreeMap<String, Page>>,
    asked: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut from, mut user) = (None, None);
    while let Some(line) = lines.next().transpose()?.filter(|line| !line.is_empty()) {
        if let Some(range) = line.strip_prefix("Range: bytes=") {
            from = range.trim_end_matches('-').parse::<usize>().ok();
        }
        user = user.or(line.strip_prefix("Authorization: Basic ").map(str::to_owned));
    }
    let range = from.map_or_else(String::new, |from| format!(" from {from}"));
    asked.lock().expect("held").push(format!("{path}{range}"));
    let page = pages.lock().expect("held").get(&path).cloned();
    let mut out = stream;
    let whole = |mut out: &TcpStream, bytes: &[u8], length: usize| {
        write!(out, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
        out.write_all(bytes)
    };
    match page {
        Some(Page::File(bytes)) => match from {
            Some(from) if from >= bytes.len() => {
                write!(out, "HTTP/1.1 416 Range\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            }
            Some(from) => {
                let (rest, end, length) = (&bytes[from..], bytes.len() - 1, bytes.len());
                write!(out, "HTTP/1.1 206 Part\r\nContent-Range: bytes {from}-{end}/{length}\r\n")?;
                write!(out, "Content-Length: {}\r\nConnection: close\r\n\r\n", rest.len())?;
                out.write_all(rest)
            }
            None => whole(out, &bytes, bytes.len()),
        },
        Some(Page::Whole(bytes)) => whole(out, &bytes, bytes.len()),
        Some(Page::For(wanted, bytes)) if user.as_deref() == Some(wanted) => whole(out, &bytes, bytes.len()),
        Some(Page::Half(bytes)) => whole(out, &bytes[..bytes.len() / 2], bytes.len()),
        Some(Page::Endless) => {
            write!(out, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
            loop {
                out.write_all(&[b'x'; 4096])?;
            }
        }
        Some(Page::To(url)) => {
            write!(out, "HTTP/1.1 302 Found\r\nLocation: {url}\r\nContent-Length: 5\r\nConnection: close\r\n\r\nmoved")
        }
        Some(Page::For(..)) => {
            write!(out, "HTTP/1.1 401 No\r\nWWW-Authenticate: Basic\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        }
        None => write!(out, "HTTP/1.1 404 No\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnone"),
    }
}
