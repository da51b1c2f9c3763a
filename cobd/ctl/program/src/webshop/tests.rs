//! The servers, each on its own thread and its own port.

use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::atomic::AtomicU8;
use std::thread::JoinHandle;
use std::time::Instant;

use super::*;

/// An address on a separate loopback host, so that no other process can take it before the server listens.
fn free() -> SocketAddr {
    static GIVEN: AtomicU8 = AtomicU8::new(0);
    let [high, low] = u16::try_from(std::process::id() % 65_000).expect("it fits").to_be_bytes();
    let host = Ipv4Addr::new(127, high, low, 2 + GIVEN.fetch_add(1, Ordering::Relaxed));
    let listener = TcpListener::bind((host, 0)).expect("bound");
    listener.local_addr().expect("its address")
}

/// The output of a server.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("whole").write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts a server and waits until it serves.
fn begin(role: Role) -> JoinHandle<Result<(), ShopError>> {
    let log = Log::default();
    let mut to = log.clone();
    let thread = std::thread::spawn(move || play(&role, &mut to));
    let began = Instant::now();
    while !String::from_utf8_lossy(&log.0.lock().expect("whole")).contains(": ready\n") {
        assert!(!thread.is_finished(), "it ended: {:?}", thread.join());
        assert!(began.elapsed() < Duration::from_secs(120), "not ready");
        std::thread::yield_now();
    }
    thread
}

fn config(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), text).expect("written");
    file
}

#[test]
fn the_price_comes_through_all_servers() {
    let config = config("goods = teapot\nprice = 10\n");
    let (db, one, two, lb) = (free(), free(), free(), free());
    begin(Role::Db { listen: db, config: config.path().to_owned() });
    begin(Role::App { listen: one, db });
    begin(Role::App { listen: two, db });
    begin(Role::Lb { listen: lb, apps: vec![one, two] });
    let answers = [ask(lb).expect("an answer"), ask(lb).expect("an answer")];
    let line = |app| format!("lb <- app {app} <- db {db}: goods = teapot, price = 10");
    assert_eq!(answers, [line(one), line(two)]);
    let mut printed = Vec::new();
    play(&Role::Ask(lb), &mut printed).expect("an answer");
    assert_eq!(String::from_utf8(printed).expect("UTF-8"), line(one) + "\n");
}

#[test]
fn a_server_does_not_start_without_its_dependencies() {
    let nobody = free();
    let ended = |role: Role| play(&role, &mut io::sink()).expect_err("something is missing").to_string();
    let refused = format!("at {nobody}: Connection refused");
    assert!(ended(Role::App { listen: free(), db: nobody }).contains(&refused));
    assert!(ended(Role::Ask(nobody)).contains(&refused));
    let config = config("price = 1\n");
    let db = free();
    begin(Role::Db { listen: db, config: config.path().to_owned() });
    let app = free();
    begin(Role::App { listen: app, db });
    assert!(ended(Role::Lb { listen: free(), apps: vec![app, nobody] }).contains(&refused));
    let gone = config.path().with_extension("gone");
    assert!(ended(Role::Db { listen: free(), config: gone }).contains("No such file"));
    let empty = self::config("\n");
    let empty = ended(Role::Db { listen: free(), config: empty.path().to_owned() });
    assert!(empty.ends_with("it names no price"), "{empty}");
    // A server without dependencies still needs its port.
    assert!(ended(Role::Db { listen: db, config: config.path().to_owned() }).contains("can't listen"));
}

#[test]
fn a_server_ends_when_its_dependency_stops() {
    let db = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    let address = db.local_addr().expect("its address");
    let database = std::thread::spawn(move || {
        let (line, _) = db.accept().expect("somebody");
        assert_eq!(read_line(&line).expect("a line"), "rest");
        (&line).write_all(b"resting\n").expect("told");
        line
    });
    let listen = free();
    let app = begin(Role::App { listen, db: address });
    let lb = begin(Role::Lb { listen: free(), apps: vec![listen] });
    // The database ends, and so does the application server. A process would close its connections, but a thread does
    // not, so the load balancer notices the end only at the next customer.
    drop(database.join().expect("the line"));
    let error = app.join().expect("no panic").expect_err("the database stopped").to_string();
    assert_eq!(error, format!("the database at {address} stopped while it was needed: the connection was closed"));
    drop(lb);
}

#[test]
fn the_words_of_the_command_line_are_checked() {
    let wrong = |line: &str| Role::parse(line.split_whitespace()).expect_err(line).to_string();
    for (line, word) in [
        ("", "no server is named"),
        ("cache --listen 127.0.0.1:1", "no server `cache`"),
        ("db --listen 127.0.0.1:1", "`db` needs `--config`"),
        ("db --listen", "`db` needs `--listen`"),
        ("app --listen 127.0.0.1:1 --config x", "has no option `--config`"),
        ("app --listen 10.0.0.1:1 --db 127.0.0.1:1", "not a loopback address"),
        ("lb --listen 127.0.0.1:1 --apps 127.0.0.1:2,", "\"\" is not an address"),
        ("ask", "single address"),
    ] {
        let told = wrong(line);
        assert!(told.contains(word) && told.contains("usage: "), "{line}: {told}");
    }
}

#[test]
fn an_endless_line_and_many_connections_do_not_stop_a_server() {
    let config = config("price = 1\n");
    let db = free();
    begin(Role::Db { listen: db, config: config.path().to_owned() });
    let mut endless = TcpStream::connect(db).expect("connected");
    let _ = endless.write_all(&vec![b'x'; 1 << 20]);
    let held: Vec<TcpStream> = (0..2 * MAX_CONNECTIONS).map(|_| TcpStream::connect(db).expect("connected")).collect();
    drop((endless, held));
    let began = Instant::now();
    while ask(db).is_err() {
        assert!(began.elapsed() < Duration::from_secs(120), "no answer");
    }
}
