//! The handshake and the ends of real processes. The test program is the job's process and the hub, too: it executes
//! itself with a role.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cob_processes::{Trail, mark};
use tempfile::TempDir;

use super::{Life, Newborn, NotStarted, begin, end_leftovers, kill, probe, terminate, wait_for_death, watch};

const ROLE: &str = "COB_TEST_ROLE";
const FOLDER: &str = "COB_TEST_FOLDER";
/// The step after which a process stays.
const STAY: &str = "COB_TEST_STAY";
const LIMIT: Duration = Duration::from_secs(120);

/// A new life of this test program.
fn program(role: &str, folder: &Path, stay: usize) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "process::process_test::as_role", "--nocapture"]);
    command.env(ROLE, role).env(FOLDER, folder).env(STAY, stay.to_string());
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command
}

#[test]
fn as_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("a folder"));
    let stay = std::env::var(STAY).ok().and_then(|text| text.parse().ok()).unwrap_or_default();
    match role.as_str() {
        "job" => as_job(&folder, stay),
        "stepwise" => as_stepwise_job(&folder, stay),
        "hub" => as_hub(&folder, stay),
        _ => unreachable!("roles"),
    }
}

fn write(folder: &Path, name: &str) {
    fs::write(folder.join(name), "").expect("written");
}

fn reached(step: usize, stay: usize, folder: &Path) {
    if step == stay {
        write(folder, "stays");
        loop {
            thread::park();
        }
    }
}

/// Works until the file `finish` is there.
fn as_job(folder: &Path, stay: usize) {
    let Ok(_alive) = begin(folder) else { return };
    work(folder, stay);
}

fn work(folder: &Path, stay: usize) {
    write(folder, "works");
    reached(4, stay, folder);
    if folder.join("family").exists() {
        // A child in the group, a child that has left it, and a grandchild in a session of its own.
        let shell = "sleep 600 & setsid sleep 600 & setsid sh -c 'setsid sleep 600 & sleep 600' & wait";
        let mut family = Command::new("sh").args(["-c", shell]).spawn().expect("a shell");
        write(folder, "has-family");
        family.wait().expect("reaped");
    }
    wait_until("the end is permitted", || folder.join("finish").exists());
    write(folder, "report");
}

/// The same steps as `begin`, one at a time.
fn as_stepwise_job(folder: &Path, stay: usize) {
    use super::begin::{announce, confirmed, create, detach, own};
    let mut socket = detach().expect("detached");
    let mut file = create(folder).expect("created");
    reached(1, stay, folder);
    own(&mut file).expect("locked");
    reached(2, stay, folder);
    announce(&mut socket).expect("announced");
    reached(3, stay, folder);
    if confirmed(&mut socket).is_ok() {
        work(folder, stay);
    }
}

/// Starts a job, and stays after a step: 1 after the start, 2 after the announcement, 3 after the record is durable, 4
/// after the confirmation.
fn as_hub(folder: &Path, stay: usize) {
    let mut newborn = Newborn::start(program("job", folder, 0), folder).expect("started");
    reached(1, stay, folder);
    newborn.announced(LIMIT).expect("announced");
    reached(2, stay, folder);
    write(folder, "record");
    reached(3, stay, folder);
    let _worker = newborn.confirm().expect("confirmed");
    reached(4, stay, folder);
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < limit, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn wait_for(folder: &Path, name: &str) {
    wait_until(name, || folder.join(name).exists());
}

fn has_processes(folder: &Path) -> bool {
    Trail::new(None, mark(folder)).in_any_session(true).leads_anywhere()
}

fn is_dead(folder: &Path) -> bool {
    probe(folder).expect("asked") == Life::Dead
}

fn start(folder: &Path, role: &str, stay: usize) -> Newborn {
    Newborn::start(program(role, folder, stay), folder).expect("started")
}

fn kill_child(child: &mut Child) {
    child.kill().expect("killed");
    child.wait().expect("reaped");
}

/// Kills the process of a job by its number, from the lock file.
fn kill_leader(folder: &Path) {
    let pid = super::life::owner(folder).expect("read").expect("a number");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}

#[test]
fn a_process_works_after_its_confirmation_and_ends() {
    let folder = TempDir::new().expect("a folder");
    let folder = folder.path();
    assert!(is_dead(folder));
    wait_for_death(folder).expect("it was never born");
    let mut newborn = start(folder, "job", 0);
    newborn.announced(LIMIT).expect("announced");
    assert_eq!(probe(folder).expect("asked"), Life::Alive);
    assert!(!folder.join("works").exists());
    let worker = newborn.confirm().expect("confirmed");
    wait_for(folder, "works");
    let (tell, heard) = mpsc::channel();
    worker.watch(move |death| tell.send(death.is_ok()).expect("heard")).expect("watched");
    assert!(heard.try_recv().is_err(), "it lives");
    write(folder, "finish");
    assert_eq!(heard.recv_timeout(LIMIT), Ok(true));
    assert!(folder.join("report").exists());
    assert!(is_dead(folder));
    assert!(!terminate(folder).expect("asked"), "nobody is there");
    kill(folder).expect("nobody is there");
}

#[test]
fn a_process_that_is_killed_at_any_step_is_seen() {
    for step in 1..=4 {
        let folder = TempDir::new().expect("a folder");
        let folder = folder.path();
        let mut newborn = start(folder, "stepwise", step);
        if step == 4 {
            newborn.announced(LIMIT).expect("announced");
            let worker = newborn.confirm().expect("confirmed");
            wait_for(folder, "stays");
            let (tell, heard) = mpsc::channel();
            worker.watch(move |death| tell.send(death.is_ok()).expect("heard")).expect("watched");
            kill_leader(folder);
            assert_eq!(heard.recv_timeout(LIMIT), Ok(true));
        } else {
            wait_for(folder, "stays");
            kill(folder).expect("killed");
            let announced = newborn.announced(LIMIT).expect_err("it is dead");
            let (ended, unlocked) =
                (matches!(announced, NotStarted::Ended), matches!(announced, NotStarted::NotLocked));
            assert!(if step == 3 { unlocked } else { ended }, "step {step}: {announced}");
            assert!(matches!(newborn.confirm(), Err(NotStarted::Ended)));
            assert!(!folder.join("works").exists());
        }
        assert!(is_dead(folder));
        assert!(!folder.join("report").exists());
        assert!(!has_processes(folder));
    }
}

#[test]
fn a_process_that_does_not_announce_itself_is_killed() {
    let folder = TempDir::new().expect("a folder");
    let folder = folder.path();
    let mut newborn = start(folder, "stepwise", 2);
    wait_for(folder, "stays");
    let late = newborn.announced(Duration::from_millis(1));
    assert!(matches!(late, Err(NotStarted::Late(_))));
    assert_eq!(probe(folder).expect("asked"), Life::Alive);
    drop(newborn);
    assert!(is_dead(folder));
    assert!(!has_processes(folder));
}

#[test]
fn a_job_works_only_if_its_hub_has_confirmed_it_before_its_death() {
    for step in 1..=4 {
        let folder = TempDir::new().expect("a folder");
        let folder = folder.path();
        let mut hub = program("hub", folder, step).spawn().expect("started");
        wait_for(folder, "stays");
        kill_child(&mut hub);
        if step < 4 {
            wait_until("the job's process ends", || !has_processes(folder) && is_dead(folder));
            assert!(!folder.join("works").exists(), "step {step}");
            assert_eq!(folder.join("record").exists(), step == 3);
        } else {
            wait_for(folder, "works");
            assert_eq!(probe(folder).expect("asked"), Life::Alive);
            write(folder, "finish");
            wait_for_death(folder).expect("it ends");
            assert!(folder.join("report").exists());
        }
        assert!(is_dead(folder));
        // The next hub starts it in the same folder.
        let _ = fs::remove_file(folder.join("stays"));
        let mut newborn = start(folder, "job", 0);
        newborn.announced(LIMIT).expect("announced");
        assert_eq!(probe(folder).expect("asked"), Life::Alive);
        drop(newborn);
        assert!(is_dead(folder));
    }
}

/// The time from a kill to the news about the death of a process that an earlier hub has started.
fn time_to_news() -> Duration {
    let folder = TempDir::new().expect("a folder");
    let folder = folder.path();
    let mut hub = program("hub", folder, 4).spawn().expect("started");
    wait_for(folder, "works");
    wait_for(folder, "stays");
    kill_child(&mut hub);
    assert_eq!(probe(folder).expect("asked"), Life::Alive);
    let (tell, heard) = mpsc::channel::<io::Result<()>>();
    watch(folder, move |death| tell.send(death).expect("heard")).expect("watched");
    assert!(heard.try_recv().is_err(), "it lives");
    let killed = Instant::now();
    kill_leader(folder);
    heard.recv_timeout(LIMIT).expect("told").expect("no error");
    let time = killed.elapsed();
    assert!(is_dead(folder));
    time
}

#[test]
fn a_restarted_hub_hears_of_a_death_within_100_ms() {
    // Other tests take the processors, too: the best of some attempts counts.
    let times: Vec<_> = (0..10).map(|_| time_to_news()).collect();
    let best = times.iter().min().expect("some");
    eprintln!("from a kill to its news: {times:?}");
    assert!(*best < Duration::from_millis(100), "{times:?}");
}

#[test]
fn an_end_without_any_hub_is_recognized_later() {
    let folder = TempDir::new().expect("a folder");
    let folder = folder.path();
    let mut hub = program("hub", folder, 4).spawn().expect("started");
    wait_for(folder, "stays");
    kill_child(&mut hub);
    write(folder, "finish");
    wait_until("the job's process ends", || !has_processes(folder) && is_dead(folder));
    assert!(is_dead(folder));
    let (tell, heard) = mpsc::channel();
    watch(folder, move |death| tell.send(death.is_ok()).expect("heard")).expect("watched");
    assert_eq!(heard.recv_timeout(LIMIT), Ok(true));
    assert!(folder.join("report").exists());
}

/// A confirmed job with relatives in several sessions.
fn family(folder: &Path) {
    write(folder, "family");
    let mut hub = program("hub", folder, 4).spawn().expect("started");
    wait_for(folder, "has-family");
    kill_child(&mut hub);
    // The shells and `setsid` have more processes, some of them for a moment.
    let sleeping = || {
        let all = fs::read_dir("/proc").expect("proc").flatten();
        let belongs = |path: PathBuf| {
            let environment = fs::read(path.join("environ")).unwrap_or_default();
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            name.trim() == "sleep" && environment.split(|byte| *byte == 0).any(|one| one == mark(folder).as_bytes())
        };
        all.filter(|entry| belongs(entry.path())).count()
    };
    wait_until("all relatives sleep", || sleeping() == 4);
}

#[test]
fn a_kill_ends_all_relatives_whatever_session_they_are_in() {
    let folder = TempDir::new().expect("a folder");
    let folder = folder.path();
    family(folder);
    kill(folder).expect("killed");
    assert!(!has_processes(folder));
    assert!(is_dead(folder));
}

#[test]
fn a_terminated_process_leaves_relatives_that_are_ended() {
    let folder = TempDir::new().expect("a folder");
    let folder = folder.path();
    family(folder);
    assert!(terminate(folder).expect("asked"));
    wait_for_death(folder).expect("it ends");
    assert!(has_processes(folder), "the relatives live");
    assert!(end_leftovers(folder, LIMIT) >= 4);
    assert!(!has_processes(folder));
}
